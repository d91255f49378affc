"""`python -m monolect.cli`: the `monolect` command where its script is not on the path."""

from monolect.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
