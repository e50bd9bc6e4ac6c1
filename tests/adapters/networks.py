"""Networks of transformers, random weights, one training step: loss and gradients of eager and of
backend="fuser", each against the same step in float64.

    python -m tests.adapters.networks                    all of them
    python -m tests.adapters.networks bert llama --dynamic
    python -m tests.adapters.networks gpt2 --autocast    bfloat16

Prints for each the distance of the loss, the relative distance of all gradients together, what was
fused, and what fell back. Not a test of the suite: kernels of a network take minutes on a CPU.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from fuser.adapters import report

Made = tuple[nn.Module, dict[str, torch.Tensor]]


def tokens() -> dict[str, torch.Tensor]:
    return {"input_ids": torch.randint(0, 50, (2, 8)), "labels": torch.randint(0, 50, (2, 8))}


def of_text(config: str, model: str, **sizes: Any) -> Callable[[], Made]:
    def make() -> Made:
        import transformers

        made = getattr(transformers, config)(vocab_size=50, **sizes)
        return getattr(transformers, model)(made), tokens()

    return make


def vit() -> Made:
    import transformers

    config = transformers.ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        image_size=16,
        patch_size=8,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=4,
    )
    inputs = {"pixel_values": torch.randn(2, 3, 16, 16), "labels": torch.tensor([1, 2])}
    return transformers.ViTForImageClassification(config), inputs


NETWORKS: dict[str, Callable[[], Made]] = {
    "bert": of_text(
        "BertConfig",
        "BertForMaskedLM",
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    ),
    "distilbert": of_text(
        "DistilBertConfig",
        "DistilBertForMaskedLM",
        dim=32,
        n_layers=2,
        n_heads=2,
        hidden_dim=64,
        dropout=0.0,
        attention_dropout=0.0,
    ),
    "gpt2": of_text(
        "GPT2Config",
        "GPT2LMHeadModel",
        n_embd=32,
        n_layer=2,
        n_head=2,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
    ),
    "llama": of_text(
        "LlamaConfig",
        "LlamaForCausalLM",
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        use_cache=False,
    ),
    "t5": of_text(
        "T5Config",
        "T5ForConditionalGeneration",
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        use_cache=False,
        decoder_start_token_id=0,
        pad_token_id=0,
    ),
    "vit": vit,
}


def step(model: nn.Module, run: Any, inputs: dict[str, torch.Tensor], autocast: bool) -> Any:
    """The loss and all gradients in one vector."""
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        loss = run(**inputs).loss
    loss.backward()
    grads = [p.grad.double().flatten() for p in model.parameters() if p.grad is not None]
    return loss.detach().double(), torch.cat(grads)


def compare(name: str, dynamic: bool, autocast: bool) -> None:
    torch.manual_seed(1)
    torch._dynamo.reset()
    model, inputs = NETWORKS[name]()
    eager, wide = copy.deepcopy(model), copy.deepcopy(model).double()
    high = {k: t.double() if t.is_floating_point() else t for k, t in inputs.items()}
    with report.recording() as seen:
        run = torch.compile(model, backend="fuser", dynamic=dynamic or None)
        loss, grads = step(model, run, inputs, autocast)
    eager_loss, eager_grads = step(eager, eager, inputs, autocast)
    true_loss, true_grads = step(wide, wide, high, False)
    size = true_grads.norm()
    print(
        f"{name}: loss off by {abs(loss - true_loss):.1e} "
        f"(eager {abs(eager_loss - true_loss):.1e}),"
        f" gradients by {(grads - true_grads).norm() / size:.1e}"
        f" (eager {(eager_grads - true_grads).norm() / size:.1e})"
    )
    print(seen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(NETWORKS))
    parser.add_argument("--dynamic", action="store_true")
    parser.add_argument("--autocast", action="store_true")
    options = parser.parse_args()
    for name in options.names:
        compare(name, options.dynamic, options.autocast)


if __name__ == "__main__":
    main()
