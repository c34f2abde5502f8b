"""``python -m kvdoctor``."""

from kvdoctor.cli.main import main

if __name__ == "__main__":
    main()
