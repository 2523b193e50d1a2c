"""What cannot change a number, of the folders of which only what is named counts (`source.py`).

An entry is a module, or a function, class or constant of one, with the reason. All else in these
folders counts as soon as a module that counts names it. `tests/runtime/test_mutations.py` changes
each of these functions in many ways and compares the results.
"""

SHOWN = "a sentence, a line of progress or a curve for people"
CHECKS = "ends the command, or gives back what it was given"
MACHINE = "which processor works, and when; numbers change by rounding at most"
BY_PERSON = "for a command that a person types; a job gets all values and paths"
BY_VALUE = "a job gets its result as a parameter, and this is compared by value"
NOTES = "what is noted beside a result"
CODE = "reads files whose code or constants count themselves"

HARMLESS = {
    "runtime.code.bare": CODE,
    "runtime.cli": SHOWN,
    "runtime.code.contract": CHECKS,
    "runtime.download": "a file that has the published checksum",
    "runtime.files.alone": MACHINE,
    "runtime.files.replacing": "where a file is written before it gets its name",
    "runtime.files.sweep": "removes what killed processes left behind",
    "runtime.files.whole": CHECKS,
    "runtime.forced": "whether a run is trained again",
    "runtime.gpus": MACHINE,
    "runtime.code.harmless": "this list",
    "runtime.names.UsageError": CHECKS,
    "runtime.names.known": CHECKS,
    "runtime.names.list_some": SHOWN,
    "runtime.names.nearest": SHOWN,
    "runtime.names.registered": CODE,
    "runtime.names.shown": SHOWN,
    "runtime.names.in_words": SHOWN,
    "runtime.code.own_data.place_of": "where data of one's own are; what is in them counts",
    "runtime.watch.progress": SHOWN,
    "runtime.records": NOTES,
    "runtime.code.source": CODE,
    "runtime.watch.tracked": SHOWN,
    "runtime.watch.trackers": SHOWN,
    "runtime.watch.trackers.csv": SHOWN,
    "study.checks": CHECKS,
    "study.command.Machine": MACHINE,
    "study.command.add_machine": MACHINE,
    "study.command.require_file": CHECKS,
    "store.identity.identify": "whether work is finished or can go on",
    "store.identity.Identity": "the same",
    "study.grid.Grid": BY_VALUE,
    "study.jobs.run_of_stage": BY_VALUE,
    "study.jobs.stage_modules": CODE,
    "study.paths.input_paths": BY_PERSON,
    "study.reading": BY_VALUE,
}
