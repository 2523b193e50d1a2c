"""Try a method on a tiny federation, and say what is wrong with it, in seconds.

    python -m fedgrid check fedsam
    python -m fedgrid check fedprox-mu0.1

It plays some rounds in both backends, twice, interrupted and resumed, with padded batches, on a
simulated GPU and, if the method's file has NEUTRAL hyper-parameters, against FedAvg. It prints
which functions the method has, what they give, what travels in a round, and a sentence for
each problem.
"""

import logging
import sys
from pathlib import Path

from fedgrid.runtime import cli
from fedgrid.study.grid import read_names


def main(arguments: list[str] | None = None) -> None:
    parser = cli.parser(__doc__)
    parser.add_argument("method", help="a file of methods/, a variant, or one with values")
    parser.add_argument(
        "--config", type=Path, default=Path("config.yaml"), help="which has your variants"
    )
    asked = parser.parse_args(arguments)
    parts = read_names(asked.config).method(asked.method, "digits")
    from fedgrid.checking.method import check

    logging.getLogger("fedgrid.engine").setLevel(logging.ERROR)  # the findings say what is wrong
    findings = check(parts)
    for name, place, gave in findings.hooks:
        print(f"{name:16} {place}: {gave}")
    for name, value in findings.facts.items():
        print(f"{name:16} {value}")
    for problem in findings.problems:
        print(f"problem: {problem}")
    if findings.problems:
        sys.exit(1)
    print(f"{asked.method}: no problem was found")


if __name__ == "__main__":
    cli.run(main)
