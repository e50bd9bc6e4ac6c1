"""A HuggingFace model through torch.compile(backend="fuser"): BERT with random weights.

    pip install transformers
    python examples/huggingface.py

The example downloads no files. Without transformers it prints a message and exits.
"""

import torch

import fuser


def main() -> None:
    try:
        from transformers import BertConfig, BertModel
    except ImportError:
        print("skipped: this example needs transformers (pip install transformers)")
        return
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=128,
        vocab_size=100,
    )
    model = BertModel(config).to(device).eval()
    tokens = torch.randint(0, 100, (2, 16), device=device)
    with torch.no_grad():
        expected = model(tokens).last_hidden_state
        got = torch.compile(model, backend="fuser")(tokens).last_hidden_state
        print(f"off by {float((got - expected).abs().max()):.1e}, values are about 1\n")
        assert (got - expected).abs().max() < 1e-4
        for graph in fuser.explain(model, tokens).graphs:
            left = ", ".join(f"{count} {op}" for (op, _), count in graph.left.most_common(5))
            print(f"{graph.name}: {graph.fused} ops in {len(graph.regions)} regions; left: {left}")


if __name__ == "__main__":
    main()
