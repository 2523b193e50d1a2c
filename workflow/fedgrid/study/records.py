"""What a study consists of: `schemas/study.schema.yaml` is the one declaration of its keys.

Of a key that takes one name or several, `listed` gives the list.
"""

from typing import Any

Study = dict[str, Any]
Scale = dict[str, Any]  # with `awaits`: by grid, the product whose choices are not there yet
Block = dict[str, Any]  # of a grid: its runs are the product of the axes
Product = dict[str, Any]  # an entry: its sources are `from`, the options of its file are `with`
Sweep = dict[str, dict[str, list[Any]]]  # by name and field, the values
Wanted = dict[str, list[Any]]  # the names of a block by axis, after the configuration was applied
