"""Message catalogues: ``<language>/LC_MESSAGES/ctxdoctor.po``, read as they are or compiled. ``python -m diagnose.locales.build`` renews them."""
