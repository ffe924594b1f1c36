"""An index in a folder or in an object store: its format, its log, and who writes and reads them."""
