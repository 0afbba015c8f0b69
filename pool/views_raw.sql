-- SPDX-License-Identifier: Apache-2.0
-- The counters from which a pool was derived, among them the congestion window. In DuckDB itself:
--   SET VARIABLE raw = 'datasets/raw';
--   .read pool/views_raw.sql

-- One row per tick: what the kernel and the bottleneck counted. set and scheme come from the folders' names.
CREATE OR REPLACE VIEW raw AS
SELECT *
FROM read_parquet(
    coalesce(getvariable('raw_parts'), [getvariable('raw') || '/set=*/scheme=*/part-*.parquet']),
    union_by_name = coalesce(getvariable('raw_disturbed'), false),
    hive_partitioning = true,
    hive_types = {'set': VARCHAR, 'scheme': VARCHAR}
);
