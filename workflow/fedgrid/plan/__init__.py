"""What the rules of the Snakefile ask: jobs, products, and what is refused. No torch, no pandas.

`workflow/rules/common.smk` makes one `Plan`, and objects that answer for it. A rule then names what
it needs, such as `input: unpack(runs.inputs("data", "partition"))`.
"""
