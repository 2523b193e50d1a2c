"""YAML as fedgrid reads it everywhere: a word is a number only if it looks like one to everybody.

PyYAML follows YAML 1.1, in which `5e-4` is text, and `2023_01`, `12:30`, `010` and `no` are the
numbers 202301, 750 and 8 and the value false. Here a number is written in decimal digits, with or
without a point and an exponent, and not with a leading zero. Only true and false are truth values,
only null, ~ and nothing are null, and everything else is text: also dates.
"""

import re
from contextlib import suppress
from typing import Any

import yaml
from yaml.composer import Composer, ComposerError

from fedgrid.runtime.names import shown

FASTEST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
FORMS = {  # by YAML's tag: what a plain word of it looks like, and how it may begin
    "null": ("~|null|Null|NULL|", "~nN"),
    "bool": ("true|True|TRUE|false|False|FALSE", "tTfF"),
    "merge": ("<<", "<"),
    "int": ("[-+]?(0|[1-9][0-9]*)", "+-0123456789"),
    "float": (
        r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
        r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "+-.0123456789",
    ),
}


class Plain(Composer):
    """A part of YAML's loaders with the FORMS of words, which refuses duplicate keys.

    A duplicate key would hide a value.
    """

    yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012  of this class, not of PyYAML's

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        keys = [(key.tag, key.value) for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for at, (_, name) in enumerate(keys):
            if keys[at] in keys[:at] and name != "<<":
                said = f"found the key `{shown(name)}` twice"
                raise ComposerError(None, None, said, node.value[at][0].start_mark)
        return node


for tag, (form, first) in FORMS.items():
    for letter in (*first, "") if tag == "null" else first:
        rule = f"tag:yaml.org,2002:{tag}", re.compile(rf"(?:{form})\Z")
        Plain.yaml_implicit_resolvers.setdefault(letter, []).append(rule)


class Loader(Plain, yaml.SafeLoader):
    """YAML's safe loader, with these rules."""


class FastLoader(Plain, FASTEST):
    """The same with the parser of libyaml, where PyYAML has it: six times as fast."""

    def __init__(self, stream: Any):
        Composer.__init__(self)
        FASTEST.__init__(self, stream)


def load_yaml(content: bytes | str) -> Any:
    """Return the content of a YAML text. Errors are of Python's parser, which says more."""
    with suppress(yaml.YAMLError):
        return yaml.load(content, FastLoader)
    return yaml.load(content, Loader)
