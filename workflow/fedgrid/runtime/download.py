"""Downloads: verified, resumed after an interruption, and visible only when complete.

Partial downloads continue with HTTP range requests (RFC 9110, section 14). The package pooch
would restart an interrupted download of gigabytes, so it is not used.
"""

import hashlib
import logging
import re
import time
from collections.abc import Iterable
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any, BinaryIO
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from fedgrid.runtime import cli, files
from fedgrid.runtime.names import UsageError

ATTEMPTS = 4  # failures in a row without one new byte
WAIT = 1.0  # seconds before the second attempt; each further wait is one WAIT longer
TIMEOUT = 20.0  # seconds without data
BLOCK = 1 << 18  # bytes
SAY_EVERY = 10.0  # seconds between two log lines

log = logging.getLogger(__name__)


def fetch(url: str, path: Path, checksum: str, mirrors: Iterable[str] = ()) -> Path:
    """Download `url`, or else a mirror, to `path` unless the file exists; return `path`.

    `checksum` is `md5:<hex>` or `sha256:<hex>` with at least the first 8 digits. An existing file
    is verified and never changed. If several processes want the same file, one downloads it and
    the others wait. UsageError: no network, or a wrong checksum.
    """
    if not path.exists():
        try:
            with files.alone(path):
                if not path.exists():  # no other process has finished it meanwhile
                    return _download_from_any([url, *mirrors], path, checksum)
        except OSError as problem:
            raise _unobtainable(url, path, checksum, problem) from problem
    with path.open("rb") as file:
        verify(file, checksum, path)
    return path


def verify(file: Any, checksum: str, path: Path | str) -> None:
    """Raise a UsageError that names `path` if the bytes of `file` do not have this checksum."""
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


def _download_from_any(urls: list[str], path: Path, checksum: str) -> Path:
    failures = []
    for url in urls:
        try:
            return _download(url, path, checksum)
        except UsageError as problem:
            failures.append(problem)
    raise failures[0]


def _download(url: str, path: Path, checksum: str) -> Path:
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
    return part.replace(path)


def _persist(url: str, part: Path) -> None:
    """Download, resuming after each failure, until several attempts in a row bring no new byte."""
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
    """Append the missing bytes to `part`; ConnectionError if the server stops too early."""
    have = _size(part)
    headers = {"Range": f"bytes={have}-"} if have else {}
    try:
        response = urlopen(Request(url, headers=headers), timeout=TIMEOUT)
    except HTTPError as problem:
        if problem.code == 416 and have:  # the file is complete; its checksum is verified later
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
    """Copy with a bar on a terminal, else with a log line every ten seconds."""
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
