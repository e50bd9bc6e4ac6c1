"""Other libraries' trainers and models with torch.compile(backend="fuser"), each beside eager mode.

    pip install transformers accelerate peft lightning torchao diffusers
    python examples/trainers.py [NAME ...]

The examples download no files and train tiny models for three steps on the CPU. A missing library
is skipped. docs/recipes.md says what each line is for.
"""

import contextlib
import io
import os
import sys
import tempfile
import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

os.environ.setdefault("HF_HUB_OFFLINE", "1")
Losses = list[float]


def words(step: int) -> torch.Tensor:
    return torch.randint(0, 64, (2, 12), generator=torch.Generator().manual_seed(step))


def llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "vocab_size": 64}
    return LlamaForCausalLM(LlamaConfig(num_hidden_layers=1, num_attention_heads=4, **sizes))


class Net(nn.Module):
    """Module.compile() acts on classes of a program, not on torch.nn.Sequential itself."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(32), nn.Linear(32, 64), nn.Linear(64, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(self.norm(x))))


def images(step: int) -> torch.Tensor:
    return torch.randn(16, 32, generator=torch.Generator().manual_seed(step))


def transformers(fused: bool) -> Losses:
    from transformers import Trainer, TrainingArguments

    model = llama()
    if fused:
        model.compile(backend="fuser")  # TrainingArguments(torch_compile_backend=...) refuses names
    data = [{"input_ids": row, "labels": row} for step in range(3) for row in words(step)]
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            folder,
            max_steps=3,
            per_device_train_batch_size=2,
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(model, settings, train_dataset=data)
        trainer.train()
    return [float(row["loss"]) for row in trainer.state.log_history if "loss" in row]


def accelerate(fused: bool) -> Losses:
    from accelerate import Accelerator
    from peft import LoraConfig, get_peft_model

    adapter = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.0)
    model = get_peft_model(llama(), adapter)
    if fused:
        model.compile(backend="fuser")
    engine = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, optimizer = engine.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    losses = []
    for step in range(3):
        with engine.accumulate(model):
            loss = model(input_ids=words(step), labels=words(step)).loss
            engine.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def lightning(fused: bool) -> Losses:
    from lightning import LightningModule, Trainer

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.net = Net()
            if fused:
                self.net.compile(backend="fuser")  # the step is not part of forward()

        def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
            loss = self.net(batch).square().mean()
            losses.append(loss.item())
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    losses: Losses = []
    off = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    trainer = Trainer(max_steps=3, accelerator="cpu", **dict.fromkeys(off, False))
    batches = torch.utils.data.DataLoader([*map(images, range(3))], batch_size=None)
    trainer.fit(Module(), batches)
    return losses


def torchao(fused: bool) -> Losses:
    from torchao.quantization import Float8WeightOnlyConfig, Int8WeightOnlyConfig, quantize_

    losses = []
    for settings in (Int8WeightOnlyConfig(), Float8WeightOnlyConfig()):
        torch.manual_seed(0)
        model = Net().eval()
        quantize_(model, settings)
        call = torch.compile(model, backend="fuser") if fused else model
        with torch.no_grad():
            losses.append(call(images(0)).square().mean().item())
    return losses


def diffusers(fused: bool) -> Losses:
    from diffusers import UNet2DModel

    torch.manual_seed(0)
    sizes = {"block_out_channels": (16, 32), "norm_num_groups": 4, "layers_per_block": 1}
    blocks = {"down_block_types": ("DownBlock2D",) * 2, "up_block_types": ("UpBlock2D",) * 2}
    model = UNet2DModel(sample_size=8, add_attention=False, **sizes, **blocks)
    if fused:
        model.compile(backend="fuser")
    image = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    return [model(image, torch.tensor([5])).sample.square().mean().item()]


RECIPES: tuple[Callable[[bool], Losses], ...] = (
    transformers,
    accelerate,
    lightning,
    torchao,
    diffusers,
)


def main() -> None:
    import fuser

    names = sys.argv[1:] or [recipe.__name__ for recipe in RECIPES]
    for recipe in (r for r in RECIPES if r.__name__ in names):
        name = recipe.__name__
        try:
            with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expected, before = recipe(False), fuser.cache_info()
                losses, after = recipe(True), fuser.cache_info()
        except ImportError as error:
            print(f"{name}: skipped, {error}")
            continue
        assert after.hits + after.misses > before.hits + before.misses, f"{name}: nothing ran"
        off = max(abs(a - b) / abs(b) for a, b in zip(losses, expected, strict=True))
        assert off < 1e-4, (name, losses, expected)
        print(f"{name}: {len(losses)} losses agree with eager mode, largest difference {off:.0e}")


if __name__ == "__main__":
    main()
