"""What is done with whole tables: reading, export, forecast, reconciliation, a backfill without Spark."""
