"""Hosts: the containers that an Unweight file can be, a row each."""

from typing import Final

from unweight.archive.host.gguf import GgufHost
from unweight.archive.host.protocol import Host
from unweight.archive.host.safetensors import SafetensorsHost
from unweight.containers.base import ContainerIndex
from unweight.containers.registry import container_named

HOSTS: Final[dict[str, Host]] = {"safetensors": SafetensorsHost(), "gguf": GgufHost()}


def host_of(source: ContainerIndex) -> Host:
    """Return what hosts the Unweight file of a source."""
    return HOSTS[container_named(source.container).host]


__all__ = ["HOSTS", "Host", "host_of"]
