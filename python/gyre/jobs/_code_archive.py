"""Folders of code as the archives that nodes unpack: the same bytes as those of `gyre job submit --code` (ADR 53), so
that a folder is uploaded once, by whichever client."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections import Counter
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from gyre.errors import InvalidArgumentError

MOST_BYTES = 256 << 20
MOST_FILES = 20_000
_DIGITS = re.compile(rb"[0-9a-f]{64}")  # A user's token, or the agents' key.
_TEXT = re.compile(rb"[\x20-\x7e\n\t]*")
_KEY_BYTES = 32
_MOST_SERVER_FILE_BYTES = 4096
_BLOCK = 512
_LONGEST_NAME = 100


@dataclass(frozen=True)
class CodeArchive:
    data: bytes
    sha256: str
    files: int


class IgnoreRules:
    """The files that a folder's .gyreignore (or else its .gitignore) excludes; the last matching line decides."""

    def __init__(self, text: str) -> None:
        self._rules = [_Rule(line) for line in (raw.rstrip(" \r") for raw in text.split("\n")) if _is_rule(line)]

    def leaves_out(self, path: str, *, is_folder: bool) -> bool:
        out = False
        for rule in self._rules:
            if (is_folder or not rule.folders_only) and rule.matches(path):
                out = not rule.keeps
        return out


def _is_rule(line: str) -> bool:
    return not line.startswith("#") and line.lstrip("!").strip("/") != ""


class _Rule:
    def __init__(self, line: str) -> None:
        self.keeps = line.startswith("!")
        line = line.removeprefix("!")
        if line.endswith("/**"):
            line = line[:-2]
        self.folders_only = line.endswith("/")
        line = line.rstrip("/")
        self._anywhere = line.startswith("**/")
        line = line.removeprefix("**/")
        self._anchored = not self._anywhere and "/" in line
        self._pattern = re.compile(_expression_of(line.removeprefix("/")), re.DOTALL)

    def matches(self, path: str) -> bool:
        if self._anchored:
            return self._pattern.fullmatch(path) is not None
        parts = path.split("/")
        first = 0 if self._anywhere else len(parts) - 1
        return any(self._pattern.fullmatch("/".join(parts[at:])) for at in range(first, len(parts)))


def _expression_of(pattern: str) -> str:
    """As fnmatch(3) reads it with FNM_PATHNAME: neither `*`, `?` nor `[…]` matches a slash."""
    expression = ""
    at = 0
    while at < len(pattern):
        bracket = re.compile(r"\[([!^]?)(\]?[^]]*)\]").match(pattern, at)
        if pattern[at] == "*":
            expression += "[^/]*"
        elif pattern[at] == "?":
            expression += "[^/]"
        elif pattern[at] == "\\" and at + 1 < len(pattern):
            at += 1
            expression += re.escape(pattern[at])
        elif bracket is not None and "/" not in bracket.group(2):
            inside = bracket.group(2).replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace("^", "\\^")
            expression += f"(?!/)[{'^' if bracket.group(1) else ''}{inside}]"
            at = bracket.end() - 1
        else:
            expression += re.escape(pattern[at])
        at += 1
    return expression


def _header(
    name: bytes, kind: bytes, mode: int = 0o644, size: int = 0, modified_s: int = 0, link: bytes = b""
) -> bytes:
    header = bytearray(_BLOCK)
    fields = [
        (0, name[:_LONGEST_NAME]),
        (100, b"%07o" % mode),
        (108, b"0000000"),
        (116, b"0000000"),
        (124, b"%011o" % size),
        (136, b"%011o" % max(modified_s, 0)),
        (148, b" " * 8),
        (156, kind),
        (157, link[:_LONGEST_NAME]),
        (257, b"ustar\x0000"),
    ]
    for at, value in fields:
        header[at : at + len(value)] = value
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def _pax_line(key: bytes, value: bytes) -> bytes:
    """ "30 path=…": the number counts itself."""
    rest = b" %s=%s\n" % (key, value)
    length = len(rest) + 1
    while len(str(length)) + len(rest) != length:
        length = len(str(length)) + len(rest)
    return str(length).encode() + rest


class _Collector:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rules_file = _rules_file_of(folder)
        self._rules = _rules_in(folder / self._rules_file)
        self._data = bytearray()
        self._files = 0
        self._bytes = 0
        self._bytes_of: Counter[str] = Counter()
        self._walk("")

    def archive(self) -> CodeArchive:
        data = bytes(self._data) + bytes(2 * _BLOCK)
        return CodeArchive(data, hashlib.sha256(data).hexdigest(), self._files)

    def _walk(self, below: str) -> None:
        for name in sorted(os.listdir(self._folder / below), key=os.fsencode):
            self._add(f"{below}/{name}" if below else name)

    def _add(self, path: str) -> None:
        file = self._folder / path
        status = file.lstat()
        is_folder = stat.S_ISDIR(status.st_mode)
        if path == ".git" or self._rules.leaves_out(path, is_folder=is_folder):
            return
        modified_s = status.st_mtime_ns // 1_000_000_000
        if is_folder:
            self._append(path + "/", b"5", 0o755, modified_s)
            self._walk(path)
            return
        self._count(path, status.st_size)
        if stat.S_ISLNK(status.st_mode):
            self._append(path, b"2", 0o644, modified_s, link=self._link_target(path, file))
        elif stat.S_ISREG(status.st_mode):
            mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
            content = file.read_bytes()
            self._refuse_secrets(file, not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO), content)
            self._append(path, b"0", mode, modified_s, content=content)
        else:
            raise InvalidArgumentError(
                f"{file} is neither a file, a folder nor a link; leave it out in {self._rules_file}"
            )

    def _refuse_secrets(self, file: Path, is_private: bool, content: bytes) -> None:
        """Jobs of others may run on the same nodes as the same user."""
        if what := _secret_in(file.name, is_private, content):
            raise InvalidArgumentError(
                f"{file} holds {what}, and code is copied to every node; keep it in another folder, or leave it out in "
                f"{self._rules_file}"
            )

    def _link_target(self, path: str, file: Path) -> str:
        target = str(file.readlink())
        leads_to = os.path.normpath(PurePosixPath(path).parent / target)
        if not target.startswith("/") and leads_to.split("/", 1)[0] != "..":
            return target
        raise InvalidArgumentError(
            f"{file} is a link to {target}, out of the folder, which no node has; leave it out in "
            f"{self._rules_file}, or put the file there"
        )

    def _append(
        self, path: str, kind: bytes, mode: int, modified_s: int, *, link: str = "", content: bytes = b""
    ) -> None:
        name, target = os.fsencode(path), os.fsencode(link)
        extended = _pax_line(b"path", name) if len(name) > _LONGEST_NAME else b""
        extended += _pax_line(b"linkpath", target) if len(target) > _LONGEST_NAME else b""
        if extended:
            self._put(_header(b"pax", b"x", size=len(extended)), extended)
        self._put(_header(name, kind, mode, len(content), modified_s, target), content)

    def _put(self, header: bytes, content: bytes) -> None:
        self._data += header + content + bytes(-len(content) % _BLOCK)

    def _count(self, path: str, size: int) -> None:
        self._files += 1
        self._bytes += size
        self._bytes_of[path.split("/", 1)[0]] += size
        if self._bytes <= MOST_BYTES and self._files <= MOST_FILES:
            return
        largest, its_bytes = self._bytes_of.most_common(1)[0]
        raise InvalidArgumentError(
            f"{self._folder} has more than {MOST_BYTES >> 20} MB or {MOST_FILES} files; code is uploaded whole. The "
            f"largest part so far is {largest} ({its_bytes >> 20} MB): leave it out in {self._rules_file}, and put "
            "data on a mount"
        )


def _rules_file_of(folder: Path) -> str:
    """The one that is in force, or would be if it were there."""
    has_ours, has_gits = ((folder / name).is_file() for name in (".gyreignore", ".gitignore"))
    return ".gitignore" if has_gits and not has_ours else ".gyreignore"


def _rules_in(file: Path) -> IgnoreRules:
    return IgnoreRules(file.read_text(encoding="utf-8", errors="surrogateescape") if file.is_file() else "")


def _secret_in(name: str, is_private: bool, content: bytes) -> str:
    """What of Gyre's own secrets a file holds, in words; as gyre/jobs/client/secrets_in_code.h recognises it."""
    if _is_server_file(content):
        return "a token for a job server"
    is_named_secret = any(word in name.lower() for word in ("token", "key"))
    if _DIGITS.fullmatch(content.rstrip(b"\r\n")) and (is_private or is_named_secret):
        return "a token or a key of Gyre"
    if is_private and len(content) == _KEY_BYTES and not _TEXT.fullmatch(content):
        return "a key such as GYRE_KEY_FILE names"
    return ""


def _is_server_file(content: bytes) -> bool:
    if len(content) > _MOST_SERVER_FILE_BYTES:
        return False
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError):
        return False
    if not isinstance(parsed, dict) or "server" not in parsed:
        return False
    token = parsed.get("token")
    return isinstance(token, str) and _DIGITS.fullmatch(token.encode(errors="replace")) is not None


def archive_code(folder: str | os.PathLike[str]) -> CodeArchive:
    """The files, folders and links of `folder`, except .git and what its rules exclude. InvalidArgumentError for a
    link that leads out of it, for anything that is neither file, folder nor link, for a file that holds a token or a
    key of Gyre's, and for a folder beyond the limits, naming the largest of its parts."""
    path = Path(folder)
    if not path.is_dir():
        raise InvalidArgumentError(f"{path} is not a folder")
    return _Collector(path).archive()
