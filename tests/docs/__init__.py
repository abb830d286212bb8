"""The documentation: its links lead somewhere, its commands exist, and README and quickstarts run as printed."""
