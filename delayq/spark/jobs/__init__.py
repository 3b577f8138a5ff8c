"""The work on complete tables: reading, export, forecast, reconciliation, a backfill without Spark."""
