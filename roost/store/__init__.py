"""PostgreSQL: tables, migrations, connections, and the embedded server."""
