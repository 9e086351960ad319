"""Message catalogues: ``<language>/LC_MESSAGES/ctxdoctor.po``, read as they are or compiled. ``python -m tests.tools.catalogues`` renews them."""
