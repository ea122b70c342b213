"""`python -m recipes.inference --out runs/inference`."""

from collections.abc import Sequence

from recipes.cases.outputs import leave, parser, quiet_environment


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the recipe that the command line describes."""
    about = "Measure the inference of a small model from a single call to a loop of requests."
    options = parser("inference", about).parse_args(arguments)
    quiet_environment()
    from recipes.inference.run import run  # noqa: PLC0415 - seconds, and --help needs none

    leave(run(options.size, options.out), options.out, (options.json,), options.note)


if __name__ == "__main__":
    main()
