-- SPDX-License-Identifier: Apache-2.0
-- What a league measured. In DuckDB itself:
--   SET VARIABLE league = 'leagues/results';
--   .read pool/views_league.sql

-- One row per scheme, environment and scoring window: goodput, delay, score, the window's best, whether it won.
CREATE OR REPLACE VIEW league AS
SELECT * FROM read_parquet(getvariable('league') || '/scores.parquet');
