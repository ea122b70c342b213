"""`python -m recipes.serving [--out DIR] [--size small|full]`."""

from recipes.cases.outputs import leave, parser, quiet_environment


def main(arguments: list[str] | None = None) -> None:
    """Measure, print and write what the command line asks for."""
    options = parser("serving", "Dynamic batching under an open-loop load.").parse_args(arguments)
    quiet_environment()
    from recipes.serving.measure import measured  # noqa: PLC0415 --help needs no torch

    run = measured(small=options.size == "small")
    leave(run, options.out, (options.json,), options.note)


if __name__ == "__main__":
    main()
