"""The documentation: its links lead somewhere, its commands exist, and the quickstarts run as printed."""
