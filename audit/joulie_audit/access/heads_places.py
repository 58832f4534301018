"""The places of HEADS_TO and of `joulie verify --heads`, opened with the settings of a command."""

from pathlib import Path

from joulie_bus.s3.bucket import Bucket, BucketPlace, BucketSettings
from joulie_operator.cluster_settings import ClusterSettings
from joulie_projections.component.wiring import Wiring
from joulie_projections.witness.head_keepers import BucketKeeper, FileKeeper, HeadKeeper
from joulie_projections.witness.settings import HeadsPlace

SETTINGS = (BucketSettings, ClusterSettings)


def keeper_of(place: HeadsPlace, wires: Wiring) -> HeadKeeper:
    if isinstance(place, Path):
        return FileKeeper(place)
    if isinstance(place, BucketPlace):
        return BucketKeeper(Bucket(place, wires.source.load(BucketSettings)))
    from joulie_operator.kube.heads_map import ConfigMapKeeper  # 40 MB: the Kubernetes client

    return ConfigMapKeeper.of(place, wires.source.load(ClusterSettings).kubeconfig)
