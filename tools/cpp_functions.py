"""Finds the functions of a clang-format'ed C++ file by matching braces.

Not a parser: it leans on our format, in which the brace of a body follows a space and that of an initialiser does not.
Lambdas and local classes count as lines of the function they stand in.
"""

import re
from dataclasses import dataclass, field

COMMENT = r"//[^\n]*|/\*.*?\*/"
RAW_STRING = r'R"(?P<delimiter>[^(\s]*)\(.*?\)(?P=delimiter)"'
STRING = r'"(?:\\.|[^"\\\n])*"'
CHARACTER = r"(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'"
NOISE = re.compile(f"{COMMENT}|{RAW_STRING}|{STRING}|{CHARACTER}", re.DOTALL)
PREPROCESSOR = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
TEMPLATE = re.compile(r"^template\s*<")
TYPE_OR_NAMESPACE = re.compile(r'^(?:inline\s+)?(?:namespace|class|struct|union|enum|extern ""\s*$)\b|^extern\s+""$')
ACCESS = re.compile(r"^(?:public|protected|private)\s*:$")
NAME = re.compile(r"((?:[\w~]+(?:<[^()]*>)?::)*(?:operator\s*[^\s(]+|operator\(\)|~?\w+))\s*\(")
TEST_MACRO = re.compile(r"^(?:TYPED_)?TEST(?:_[FP])?\s*\(\s*(\w+)\s*,\s*(\w+)")


def blank(match: re.Match[str]) -> str:
    """The same number of lines, without content; a string keeps its quotes."""
    text = match.group(0)
    lines = "\n" * text.count("\n")
    return ('""' if text.endswith('"') else "") + lines


def skip_template(header: str) -> str:
    """The declaration without its leading `template <...>` clauses."""
    while TEMPLATE.match(header):
        depth = 0
        for index, character in enumerate(header):
            depth += {"<": 1, ">": -1}.get(character, 0)
            if character == ">" and depth == 0:
                header = header[index + 1 :].lstrip()
                break
        else:
            return header
    return header


def opens_scope(header: str) -> bool:
    """Whether the brace after this text opens a namespace or a type, whose functions are to be looked at."""
    header = skip_template(header.strip())
    if not TYPE_OR_NAMESPACE.match(header):
        return False
    # `struct stat look(...) {` is a function that returns a struct.
    return not re.search(r"\)\s*(?:const|noexcept|override|final|\s)*$", header)


def opens_function(header: str) -> bool:
    """Whether the brace after this text, which opens no scope, is the body of a function."""
    header = header.rstrip()
    return "(" in header and not header.endswith(("=", ",", "(", "return"))


def function_name(header: str) -> str:
    header = skip_template(header.strip())
    test = TEST_MACRO.match(header)
    if test:
        return f"{test.group(1)}.{test.group(2)}"
    match = NAME.search(re.sub(r"\[\[.*?\]\]", "", header))
    return re.sub(r"\s+", "", match.group(1)) if match else "?"


@dataclass
class Scanner:
    """Where the scan stands: the text since the last declaration, and what the open braces are."""

    header: str = ""
    header_line: int = 1
    # "scope" (namespace, type), "function" or "other" (initialiser).
    open: list[str] = field(default_factory=list)
    started: list[tuple[str, int]] = field(default_factory=list)
    found: list[tuple[str, int, int]] = field(default_factory=list)

    def outside(self) -> bool:
        return all(kind == "scope" for kind in self.open)

    def open_brace(self) -> None:
        if not self.outside():
            self.open.append("other")
        elif opens_scope(self.header):
            self.open.append("scope")
            self.header = ""
        elif self.header[-1:].isspace() and opens_function(self.header):
            self.open.append("function")
            self.started.append((function_name(self.header), self.header_line))
        else:
            self.open.append("other")

    def close_brace(self, line: int) -> None:
        if not self.open:
            raise ValueError(f"line {line}: a closing brace too many")
        kind = self.open.pop()
        if kind == "function":
            name, first = self.started.pop()
            self.found.append((name, first, line))
        if kind != "other":
            self.header = ""

    def character(self, character: str, line: int) -> None:
        if character == "{":
            self.open_brace()
        elif character == "}":
            self.close_brace(line)
        elif self.outside():
            if character == ";" or (character == ":" and ACCESS.match(f"{self.header}:")):
                self.header = ""
            elif self.header or not character.isspace():
                if not self.header:
                    self.header_line = line
                self.header += character


def functions(text: str) -> list[tuple[str, int, int]]:
    """(name, first line, last line) of every function defined at namespace or class scope, in order."""
    text = PREPROCESSOR.sub(lambda match: "\n" * match.group(0).count("\n"), NOISE.sub(blank, text))
    scanner = Scanner()
    line = 1
    for character in text:
        scanner.character(character, line)
        line += character == "\n"
    if scanner.open:
        raise ValueError(f"{len(scanner.open)} braces are never closed")
    return scanner.found
