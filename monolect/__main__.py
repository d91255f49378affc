"""`python -m monolect`: the `monolect` command."""

from monolect.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
