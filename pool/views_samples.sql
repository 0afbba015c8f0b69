-- SPDX-License-Identifier: Apache-2.0
-- Ticks in physical units, from the pool and the counters behind it: after views.sql and views_raw.sql.

-- One row per row of the pool. Name the scheme and the set: both sides are then read in part.
CREATE OR REPLACE VIEW samples AS
SELECT
    episode_id,
    "set",
    scheme,
    step,
    raw.t_s,
    raw.cwnd_pkts,
    raw.unacked_pkts AS inflight_pkts,
    raw.srtt_us / 1e3 AS srtt_ms,
    CASE WHEN raw.min_rtt_us < 4294967295 THEN raw.min_rtt_us / 1e3 END AS min_rtt_ms,
    raw.delivery_rate_bytes_s * 8 / 1e6 AS delivery_mbps,
    raw.lost_pkts,
    raw.lost_total_pkts,
    raw.link_queue_bytes AS queue_bytes,
    ['open', 'disorder', 'cwr', 'recovery', 'loss'][raw.ca_state + 1] AS ca_state,
    action,
    reward
FROM raw
JOIN transitions USING ("set", scheme, episode_id, step);
