"""The networks of benchmarks.models: random weights, realistic sizes, nothing downloaded.

A network is a module with its inputs. In training it returns its loss. `small` reduces depth and
inputs for a functional check. Networks of transformers, timm and torchvision need these packages;
five image networks and ViT have a replacement.
"""

from benchmarks.networks import images, language, written
from benchmarks.networks.network import Maker, Network

TRAINING: dict[str, Maker] = {**language.TRAINING, **images.TRAINING, **written.TRAINING}
INFERENCE: dict[str, Maker] = {**language.INFERENCE, **images.INFERENCE, **written.INFERENCE}
NETWORKS: dict[str, Maker] = {**TRAINING, **INFERENCE}

__all__ = ["INFERENCE", "NETWORKS", "TRAINING", "Maker", "Network"]
