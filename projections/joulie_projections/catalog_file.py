"""Settings for the hardware catalog and the GPU resources; reads the catalog file."""

from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from joulie_bus.errors import BadCatalog
from joulie_bus.runtime.settings import setting
from joulie_projections.hardware.catalog import Catalog, parse_catalog
from joulie_projections.hardware.gpu_resources import GPU_RESOURCES, gpu_resources


def shipped_catalog() -> Catalog:
    data = resources.files("joulie_projections").joinpath("catalog.toml").read_bytes()
    return parse_catalog(data, "the catalog shipped with Joulie")


def catalog_file(path: str) -> Catalog:
    """a TOML file of CPU and GPU models, each with its source; empty for the shipped catalog"""
    if not path:
        return shipped_catalog()
    try:
        return parse_catalog(Path(path).read_bytes(), path, shipped_catalog())
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error
    except BadCatalog as error:
        raise ValueError("; ".join(error.mistakes)) from error


@dataclass(frozen=True, kw_only=True)
class CatalogSettings:
    """Settings of components that publish discoveries."""

    catalog: Catalog = setting(
        catalog_file,
        "HARDWARE_CATALOG",
        "",
        "Your own models; they replace shipped models of the same name or are added",
    )


@dataclass(frozen=True, kw_only=True)
class GpuResourceSettings:
    """Settings of components that read pods or nodes."""

    resources: tuple[str, ...] = setting(
        gpu_resources,
        "GPU_RESOURCES",
        ",".join(GPU_RESOURCES),
        "Extended resources of pods and nodes that are GPUs; use the same list for the operator, "
        "the extender and the simulator",
    )
