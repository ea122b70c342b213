"""`python -m recipes.overlap [--out DIR] [--size small|full]`."""

from recipes.cases.outputs import leave, parser, quiet_environment


def main(arguments: list[str] | None = None) -> None:
    """Measure, print and write what the command line asks for."""
    about = "What overlaps, what it gains, and when nothing."
    options = parser("overlap", about).parse_args(arguments)
    quiet_environment()
    from recipes.overlap.measure import measured  # noqa: PLC0415 --help needs no torch

    run = measured(options.out, small=options.size == "small", also=options.json)
    leave(run, options.out, (options.json,), options.note)


if __name__ == "__main__":
    main()
