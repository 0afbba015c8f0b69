# SPDX-License-Identifier: Apache-2.0
"""`make dataset-release`: the pools that are there, as one folder for a hub of data sets, with card and Croissant.

A configuration is a pool, byte for byte with its manifest. Uploading it is left to a person; the card has placeholders
for addresses.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc
from tqdm import tqdm

from sagecc.common.errors import SageccError
from sagecc.common.files import sha256_file
from sagecc.common.manifest import MANIFEST, Manifest
from sagecc.common.parquet import read_parquet
from sagecc.pool.exports.about import CITATION, PAPER, SUMMARY, TITLE
from sagecc.pool.exports.folder import refuse_existing, write_folder_atomically
from sagecc.pool.exports.to_huggingface import header
from sagecc.pool.views import has_pool
from sagecc.schemas.partitions import EPISODES_FILE, PARTS
from sagecc.schemas.pool import FEATURE_NAMES, POOL_VERSION
from sagecc.schemas.schemes import is_disturbed
from scripts import croissant
from scripts.dataset_card import LIMITS, USES
from scripts.templates import ROOT, whole

TEMPLATE = Path(__file__).with_name("dataset_release.md.j2")
POOLS = {"small": "datasets/pool", "full": "datasets/full/pool", "kicked": "datasets/kicked/pool"}
"""Folders by configuration; the first that is there is the default."""
ABOUT = {
    "small": "a coarse grid of networks, what `make repro` collects.",
    "full": "the paper's whole grid of networks.",
    "kicked": "the schemes with their windows multiplied now and then, to recover from it; and `wander`.",
}


@dataclass(frozen=True)
class Published:
    """A pool in the folder."""

    name: str
    """Of its configuration and its folder."""
    about: str
    schemes: tuple[str, ...]
    networks: int
    episodes: int
    rows: int
    bytes: int


def main() -> None:
    """Make the folder, and say how it is tried and uploaded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "dataset")
    options = parser.parse_args()
    pools = {name: ROOT / folder for name, folder in POOLS.items() if has_pool(ROOT / folder)}
    try:
        published = publish(pools, options.out)
    except SageccError as error:
        print(f"make dataset-release: {error}", file=sys.stderr)
        sys.exit(2)
    for pool in published:
        print(f"{pool.name}: {pool.episodes:,} episodes, {pool.rows:,} rows, {pool.bytes / 1e6:,.1f} MB")
    print(f"{options.out}: fill in the addresses in README.md; then, for example,")
    print(f"  hf upload OWNER/NAME {options.out} . --repo-type dataset")


def publish(pools: Mapping[str, Path], out: Path) -> list[Published]:
    """Write the folder: whole, or not at all.

    Args:
        pools: folders of pools by configuration.
        out: the new folder.

    Raises:
        SageccError: there is no pool, one is not as its manifest says or has some schemes disturbed and others not, or
            `out` exists.
    """
    if not pools:
        raise SageccError(f"there is no pool in {', '.join(POOLS.values())}: make one with 'make repro'")
    refuse_existing(out)
    with write_folder_atomically(out) as folder:
        published = [_copy(name, pool, folder / name) for name, pool in pools.items()]
        (folder / "README.md").write_text(card(published))
        (folder / "croissant.json").write_text(croissant.release([pool.name for pool in published]))
    return published


def card(pools: list[Published]) -> str:
    """Return the card."""
    configs = [
        {"config_name": f"{pool.name}{suffix}", "data_files": f"{pool.name}/{files}"}
        for pool in pools
        for suffix, files in (("", PARTS), ("-episodes", EPISODES_FILE))
    ]
    return whole(
        TEMPLATE,
        {
            "header": header(sum(pool.rows for pool in pools), [{**configs[0], "default": True}, *configs[1:]]),
            "title": TITLE,
            "summary": SUMMARY,
            "pools": pools,
            "version": POOL_VERSION,
            "features": FEATURE_NAMES,
            "uses": USES,
            "limits": LIMITS,
            "paper": PAPER,
            "citation": CITATION,
        },
    )


def _copy(name: str, pool: Path, folder: Path) -> Published:
    """Copy a pool's files, each as its manifest says."""
    files = Manifest.read(pool).files
    for path, entry in tqdm(files.items(), desc=name, unit="file", disable=None, leave=False):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(pool / path, target)
        except FileNotFoundError:
            raise SageccError(f"{pool / path} is missing: look with 'sagecc pool check --pool {pool}'") from None
        if sha256_file(target) != entry.sha256:
            raise SageccError(f"{pool / path} is not as {MANIFEST} says: look with 'sagecc pool check --pool {pool}'")
    shutil.copyfile(pool / MANIFEST, folder / MANIFEST)
    listing = read_parquet(folder / EPISODES_FILE)
    schemes = tuple(sorted(set(listing["scheme"].to_pylist())))
    if len({is_disturbed(scheme) for scheme in schemes}) > 1:
        raise SageccError(f"{pool} has disturbed schemes and others, whose columns differ: publish them as two pools")
    return Published(
        name=name,
        about=ABOUT.get(name, ""),
        schemes=schemes,
        networks=len(listing["environment_id"].unique()),
        episodes=len(listing),
        rows=pc.sum(listing["rows"]).as_py(),
        bytes=sum(entry.bytes for entry in files.values()),
    )


if __name__ == "__main__":
    main()
