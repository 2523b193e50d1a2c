"""Files from the network: verified, resumed after a cut, and in place only when complete.

Partial downloads continue with HTTP range requests (RFC 9110, section 14).
"""

import hashlib
import logging
import os
import re
import time
from collections.abc import Iterable
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import BinaryIO
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from fedgrid import cli, files
from fedgrid.names import UsageError

CHANGES_RESULTS = False

ATTEMPTS = 4  # in a row without one new byte
WAIT = 1.0  # seconds before the second attempt, twice that before the third, ...
TIMEOUT = 20.0  # seconds of silence
BLOCK = 1 << 18  # bytes
SAY_EVERY = 10.0  # seconds

log = logging.getLogger(__name__)


def fetch(url: str, path: Path, checksum: str, mirrors: Iterable[str] = ()) -> Path:
    """`path`, holding the file of `url` (or else of a mirror), downloaded if it is not there.

    `checksum` is `md5:<hex>` or `sha256:<hex>`; of the digits, the first 8 or more are enough.
    A file that is there already is verified and never changed. Processes that want the same file
    at the same time wait for the first of them. UsageError: no network, or a wrong checksum.
    """
    if not path.exists():
        try:
            with files.alone(path):
                if not path.exists():  # nobody else has just finished it
                    _download_from_any([url, *mirrors], path, checksum)
                    return path
        except OSError as problem:
            raise _unobtainable(url, path, checksum, problem) from problem
    with path.open("rb") as file:
        verify(file, checksum, path)
    return path


def verify(file: BinaryIO, checksum: str, path: Path | str) -> None:
    """UsageError that names `path` if the bytes of `file` do not have this checksum."""
    if not re.fullmatch(r"(md5|sha256):[0-9a-f]{8,64}", checksum):
        raise ValueError(f"not a checksum: {checksum}")
    algorithm, _, digits = checksum.partition(":")
    digest = hashlib.file_digest(file, partial(hashlib.new, algorithm, usedforsecurity=False))
    found = digest.hexdigest()[: len(digits)]
    if found != digits:
        raise UsageError(
            f"{path} has the checksum {algorithm}:{found} but {checksum} is expected: "
            "delete or replace it"
        )


def _download_from_any(urls: list[str], path: Path, checksum: str) -> None:
    failures = []
    for url in urls:
        try:
            return _download(url, path, checksum)
        except UsageError as problem:
            failures.append(problem)
    raise failures[0]


def _download(url: str, path: Path, checksum: str) -> None:
    part = path.with_name(path.name + ".part")
    try:
        _persist(url, part)
    except (OSError, HTTPException) as problem:
        raise _unobtainable(url, path, checksum, problem) from problem
    try:
        with part.open("rb") as file:
            verify(file, checksum, url)
    except UsageError as problem:
        part.unlink()
        raise UsageError(f"{problem}; the download for {path} was discarded, try again") from None
    os.replace(part, path)


def _persist(url: str, part: Path) -> None:
    """Try again, from where it stopped, until nothing more arrives in several attempts."""
    failures, before = 0, _size(part)
    while True:
        try:
            return _receive(url, part)
        except (OSError, HTTPException) as problem:
            failures = 1 if _size(part) > before else failures + 1
            before = max(before, _size(part))
            refused = isinstance(problem, HTTPError) and problem.code < 500
            if refused or failures >= ATTEMPTS:
                raise
            log.info("%s: %s; trying again", part.name, problem)
            time.sleep(WAIT * failures)


def _receive(url: str, part: Path) -> None:
    """Append to `part` what it lacks; ConnectionError if the server stops too early."""
    have = _size(part)
    headers = {"Range": f"bytes={have}-"} if have else {}
    try:
        response = urlopen(Request(url, headers=headers), timeout=TIMEOUT)
    except HTTPError as problem:
        if problem.code == 416 and have:  # nothing lies beyond: the checksum will tell
            return
        raise
    with response:
        have = have if response.status == 206 else 0  # 200: the server ignored the range
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        with part.open("ab" if have else "wb") as file:
            _copy(response, file, total)
    if total and _size(part) < total:
        raise ConnectionError(f"the connection was cut at {_size(part)} of {total} bytes")


def _copy(response: BinaryIO, file: BinaryIO, total: int | None) -> None:
    """Copy with a bar on a terminal, else with a line in the log every ten seconds."""
    from tqdm import tqdm

    said = time.monotonic()
    log.info("downloading %s", file.name)
    shown = {"unit": "B", "unit_scale": True, "disable": not cli.to_terminal()}
    with tqdm(total=total, initial=file.tell(), **shown) as bar:
        while block := response.read(BLOCK):
            file.write(block)
            bar.update(len(block))
            if bar.disable and time.monotonic() - said > SAY_EVERY:
                said = time.monotonic()
                log.info("%s: %.1f of %.1f MB", file.name, file.tell() / 1e6, (total or 0) / 1e6)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _unobtainable(url: str, path: Path, checksum: str, problem: Exception) -> UsageError:
    return UsageError(
        f"{path.name} could not be downloaded from {url} ({problem}): "
        f"put the file with the checksum {checksum} at {path}"
    )
