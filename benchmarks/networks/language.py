"""Networks of transformers: language, speech, and images with text."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.networks.network import Classifier, Maker, Network, frozen, images_of, member

_SMALL_DEPTH = 2


def _made(config: str, model: str, layers: str, depth: int, sizes: dict[str, Any]) -> Any:
    """A model of transformers; `layers` names the parameters of its depth."""
    settings = {name: depth for name in layers.split()} | sizes
    return member("transformers", model)(member("transformers", config)(**settings))


class _Language(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, words: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=words, labels=labels).loss


class _Named(nn.Module):
    """One result of a model that is called by names of arguments."""

    def __init__(self, model: nn.Module, names: tuple[str, ...], result: str, **fixed: Any) -> None:
        super().__init__()
        self.model, self.names, self.result, self.fixed = model, names, result, fixed

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        given = dict(zip(self.names, inputs, strict=True))
        return getattr(self.model(**given, **self.fixed), self.result)


class _Decode(nn.Module):
    """One word of each sequence, with the keys and values of earlier words in a static cache."""

    def __init__(self, model: Any, batch: int, length: int) -> None:
        super().__init__()
        self.model, self.length = model, length
        # Releases of transformers differ in the names of the arguments.
        names = inspect.signature(type(model).forward).parameters
        self.argument = "cache" if "cache" in names else "past_key_values"
        self.positions = "cache_position" in names
        cache = member("transformers", "StaticCache")
        sizes = {"max_batch_size": batch, "dtype": torch.bfloat16, "device": "cpu"}
        known = inspect.signature(cache.__init__).parameters
        self.cache = cache(
            config=model.config,
            max_cache_len=2 * length,
            **{name: size for name, size in sizes.items() if name in known},
        )

    def start(self, words: torch.Tensor) -> None:
        """Fill half of the cache."""
        with torch.no_grad():
            self._run(words, torch.arange(words.shape[1], device=words.device))

    def forward(self, word: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        return self._run(word, position)

    def _run(self, words: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        given: dict[str, Any] = {self.argument: self.cache, "use_cache": True}
        if self.positions:
            given["cache_position"] = position
        given["position_ids"] = position[None].expand(words.shape[0], -1)
        return self.model(input_ids=words, **given).logits


def _language(
    config: str, model: str, layers: str, depth: int, batch: int, length: int, **sizes: Any
) -> Maker:
    def make(device: torch.device, small: bool) -> Network:
        built = _made(config, model, layers, _SMALL_DEPTH if small else depth, sizes)
        shape = (2, 32) if small else (batch, length)
        vocabulary = built.config.get_text_config().vocab_size
        words, labels = (torch.randint(3, vocabulary, shape, device=device) for _ in range(2))
        module = _Language(built).to(device)
        return Network(module, (words, labels), torch.bfloat16, "transformers")

    return make


def _prefill(
    config: str, model: str, layers: str, depth: int, batch: int, length: int, **sizes: Any
) -> Maker:
    """Inference on all words of the sequences."""

    def make(device: torch.device, small: bool) -> Network:
        built = _made(config, model, layers, _SMALL_DEPTH if small else depth, sizes)
        shape = (2, 32) if small else (batch, length)
        words = torch.randint(3, built.config.get_text_config().vocab_size, shape)
        result = "logits" if "For" in model or "LMHead" in model else "last_hidden_state"
        return frozen(_Named(built, ("input_ids",), result), (words,), device, "transformers")

    return make


def _decode(
    config: str, model: str, layers: str, depth: int, batch: int, length: int, **sizes: Any
) -> Maker:
    """Inference on one more word of each sequence; the cache holds `length` earlier words."""

    def make(device: torch.device, small: bool) -> Network:
        built = _made(config, model, layers, _SMALL_DEPTH if small else depth, sizes)
        rows, columns = (2, 32) if small else (batch, length)
        words = torch.randint(3, built.config.get_text_config().vocab_size, (rows, columns))
        # The cache has a place for each later word of a measurement.
        module = _Decode(built, rows, max(columns, 512))
        network = frozen(module, (words[:, :1], torch.tensor([columns])), device, "transformers")
        module.start(words.to(device))
        return network

    return make


def _images(
    config: str, model: str, batch: int, large: dict[str, Any], small_sizes: dict[str, Any]
) -> Maker:
    def make(device: torch.device, small: bool) -> Network:
        sizes = small_sizes if small else large
        built = member("transformers", model)(
            member("transformers", config)(**sizes, num_labels=1000)
        )
        inputs = images_of(device, 2 if small else batch, sizes.get("image_size", 224))
        return Network(Classifier(built).to(device), inputs, torch.bfloat16, "transformers")

    return make


def _segments(device: torch.device, small: bool) -> Network:
    """Segformer-B0: one of 150 classes for each pixel."""
    depths = [1, 1, 1, 1] if small else [2, 2, 2, 2]
    config = member("transformers", "SegformerConfig")(depths=depths, num_labels=150)
    built = member("transformers", "SegformerForSemanticSegmentation")(config)
    count, size = (2, 64) if small else (16, 512)
    images, _ = images_of(device, count, size)
    labels = torch.randint(0, 150, (count, size, size), device=device)
    module = _Named(built, ("pixel_values", "labels"), "loss").to(device)
    return Network(module, (images, labels), torch.bfloat16, "transformers")


def _whisper(small: bool) -> Any:
    depth = _SMALL_DEPTH if small else 6
    config = member("transformers", "WhisperConfig")(
        encoder_layers=depth,
        decoder_layers=depth,
        d_model=512,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        encoder_ffn_dim=2048,
        decoder_ffn_dim=2048,
        max_source_positions=100 if small else 1500,
        use_cache=False,
    )
    return member("transformers", "WhisperForConditionalGeneration")(config)


def _speech(device: torch.device, small: bool) -> Network:
    """Whisper of the size base: 30 seconds of sound, 200 words."""
    count, frames, words = (2, 200, 16) if small else (8, 3000, 200)
    sound = torch.randn(count, 80, frames, device=device)
    labels = torch.randint(3, 50000, (count, words), device=device)
    module = _Named(_whisper(small), ("input_features", "labels"), "loss").to(device)
    return Network(module, (sound, labels), torch.bfloat16, "transformers")


def _speech_encoder(device: torch.device, small: bool) -> Network:
    count, frames = (1, 200) if small else (1, 3000)
    built = _whisper(small).model.encoder
    module = _Named(built, ("input_features",), "last_hidden_state")
    return frozen(module, (torch.randn(count, 80, frames),), device, "transformers")


def _sounds(device: torch.device, small: bool) -> Network:
    """Wav2Vec2: convolutions over samples, group norm, and a class for each sound."""
    config = member("transformers", "Wav2Vec2Config")(
        num_hidden_layers=_SMALL_DEPTH if small else 12,
        num_labels=12,
        apply_spec_augment=False,
        layerdrop=0.0,
    )
    built = member("transformers", "Wav2Vec2ForSequenceClassification")(config)
    count, samples = (2, 4000) if small else (8, 80000)
    labels = torch.randint(0, 12, (count,), device=device)
    module = _Named(built, ("input_values", "labels"), "loss").to(device)
    return Network(
        module, (torch.randn(count, samples, device=device), labels), torch.bfloat16, "transformers"
    )


def _clip(device: torch.device, small: bool) -> Network:
    """CLIP of ViT-B/32: pairs of images and texts, with a contrastive loss."""
    depth = {"num_hidden_layers": _SMALL_DEPTH if small else 12}
    config = member("transformers", "CLIPConfig")(text_config=depth, vision_config=depth)
    built = member("transformers", "CLIPModel")(config)
    count = 2 if small else 64
    words = torch.randint(3, 49000, (count, 77), device=device)
    words[:, -1] = config.text_config.eos_token_id
    images, _ = images_of(device, count, 224)
    module = _Named(built, ("input_ids", "pixel_values"), "loss", return_loss=True).to(device)
    return Network(module, (words, images), torch.bfloat16, "transformers")


def vit(device: torch.device, small: bool) -> Network:
    config = member("transformers", "ViTConfig")(
        num_hidden_layers=_SMALL_DEPTH if small else 12, num_labels=1000
    )
    built = member("transformers", "ViTForImageClassification")(config)
    inputs = images_of(device, 2 if small else 64, 224)
    return Network(Classifier(built).to(device), inputs, torch.bfloat16, "transformers")


_Row = Callable[..., Maker]


def _llama(way: _Row, depth: int, batch: int, length: int) -> Maker:
    return way(
        *("LlamaConfig", "LlamaForCausalLM", "num_hidden_layers", depth, batch, length),
        hidden_size=2048,
        intermediate_size=5632,
        num_attention_heads=16,
        num_key_value_heads=4,
        **({} if way is _decode else {"use_cache": False}),
    )


def _qwen(way: _Row, depth: int, batch: int, length: int) -> Maker:
    return way(
        *("Qwen3Config", "Qwen3ForCausalLM", "num_hidden_layers", depth, batch, length),
        hidden_size=1024,
        intermediate_size=3072,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        **({} if way is _decode else {"use_cache": False}),
    )


TRAINING: dict[str, Maker] = {
    "bert4": _language("BertConfig", "BertForMaskedLM", "num_hidden_layers", 4, 16, 512),
    "bert": _language("BertConfig", "BertForMaskedLM", "num_hidden_layers", 12, 16, 512),
    "distilbert": _language("DistilBertConfig", "DistilBertForMaskedLM", "n_layers", 6, 16, 512),
    "gpt2": _language("GPT2Config", "GPT2LMHeadModel", "n_layer", 12, 4, 1024, use_cache=False),
    "t5": _language(
        *("T5Config", "T5ForConditionalGeneration", "num_layers", 6, 8, 512),
        use_cache=False,
        decoder_start_token_id=0,
        pad_token_id=0,
    ),
    "llama": _llama(_language, 4, 4, 1024),
    "vit": vit,
    "albert": _language(
        *("AlbertConfig", "AlbertForMaskedLM", "num_hidden_layers", 12, 16, 512),
        hidden_size=768,
        num_attention_heads=12,
        intermediate_size=3072,
    ),
    "roberta": _language(
        *("RobertaConfig", "RobertaForMaskedLM", "num_hidden_layers", 12, 16, 512),
        max_position_embeddings=514,
    ),
    "deberta": _language(
        *("DebertaV2Config", "DebertaV2ForMaskedLM", "num_hidden_layers", 12, 8, 512),
        hidden_size=768,
        num_attention_heads=12,
        intermediate_size=3072,
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        position_buckets=256,
    ),
    "modernbert": _language(
        *("ModernBertConfig", "ModernBertForMaskedLM", "num_hidden_layers", 22, 8, 1024),
        attn_implementation="sdpa",
    ),
    "xlnet": _language(
        *("XLNetConfig", "XLNetLMHeadModel", "n_layer", 12, 8, 512),
        d_model=768,
        n_head=12,
        d_inner=3072,
    ),
    "opt": _language(
        *("OPTConfig", "OPTForCausalLM", "num_hidden_layers", 12, 4, 1024), use_cache=False
    ),
    "gptneox": _language(
        *("GPTNeoXConfig", "GPTNeoXForCausalLM", "num_hidden_layers", 12, 4, 1024),
        hidden_size=768,
        num_attention_heads=12,
        intermediate_size=3072,
        use_cache=False,
    ),
    "bloom": _language(
        *("BloomConfig", "BloomForCausalLM", "n_layer", 12, 4, 1024),
        vocab_size=50000,
        hidden_size=1024,
        n_head=16,
        use_cache=False,
    ),
    "qwen3": _qwen(_language, 12, 2, 1024),
    "gemma3": _language(
        *("Gemma3TextConfig", "Gemma3ForCausalLM", "num_hidden_layers", 12, 4, 1024),
        vocab_size=65536,
        hidden_size=1152,
        intermediate_size=6912,
        num_attention_heads=4,
        num_key_value_heads=1,
        use_cache=False,
    ),
    "olmo2": _language(
        *("Olmo2Config", "Olmo2ForCausalLM", "num_hidden_layers", 6, 4, 1024),
        hidden_size=2048,
        intermediate_size=5632,
        num_attention_heads=16,
        use_cache=False,
    ),
    "bart": _language(
        *("BartConfig", "BartForConditionalGeneration", "encoder_layers decoder_layers", 6, 8, 512),
        d_model=768,
        encoder_attention_heads=12,
        decoder_attention_heads=12,
        encoder_ffn_dim=3072,
        decoder_ffn_dim=3072,
        use_cache=False,
    ),
    "whisper": _speech,
    "wav2vec2": _sounds,
    "clip": _clip,
    "swin": _images(
        *("SwinConfig", "SwinForImageClassification", 64),
        {},
        {"image_size": 56, "depths": [1, 1], "num_heads": [3, 6]},
    ),
    "segformer": _segments,
}
INFERENCE: dict[str, Maker] = {
    "bert_encode": _prefill("BertConfig", "BertModel", "num_hidden_layers", 12, 8, 128),
    "t5_encode": _prefill(
        *("T5Config", "T5EncoderModel", "num_layers", 12, 8, 256), d_model=768, d_ff=3072
    ),
    "whisper_encode": _speech_encoder,
    "gpt2_prefill": _prefill(
        *("GPT2Config", "GPT2LMHeadModel", "n_layer", 12, 1, 1024), use_cache=False
    ),
    "llama_prefill": _llama(_prefill, 8, 1, 1024),
    "qwen3_prefill": _qwen(_prefill, 12, 1, 1024),
    "gpt2_decode": _decode("GPT2Config", "GPT2LMHeadModel", "n_layer", 12, 8, 512),
    "llama_decode": _llama(_decode, 8, 1, 512),
    "qwen3_decode": _qwen(_decode, 12, 8, 512),
}
