-- SPDX-License-Identifier: Apache-2.0
-- The views an analyst starts from. In DuckDB itself:
--   SET VARIABLE pool = 'datasets/pool';
--   .read pool/views.sql

-- One row per tick: state, action, reward. The columns set and scheme come from the folders' names. A pool with
-- disturbed schemes (cubic+kicks) has is_kicked too, null for the others: there the action is no scheme's. In DuckDB
-- itself: SET VARIABLE pool_disturbed = true.
CREATE OR REPLACE VIEW transitions AS
SELECT *
FROM read_parquet(
    coalesce(getvariable('pool_parts'), [getvariable('pool') || '/set=*/scheme=*/part-*.parquet']),
    union_by_name = coalesce(getvariable('pool_disturbed'), false),
    hive_partitioning = true,
    hive_types = {'set': VARCHAR, 'scheme': VARCHAR}
);

-- What the bottleneck's rate comes to on average while the flow runs (Mbps): of its schedule in an environment's JSON, or
-- the base rate where that has none (a trace).
CREATE OR REPLACE MACRO rates_of(network, base_mbps) AS (
    list_filter(
        from_json(json_extract(network, '$.links'), '[{"rates": [{"t_s": "DOUBLE", "rate_mbps": "DOUBLE"}]}]'),
        lambda link: link.rates[1].rate_mbps = base_mbps
    )[1].rates
);
CREATE OR REPLACE MACRO mean_rate(rates, begin_s, end_s) AS
    list_sum(
        list_transform(
            rates,
            lambda rate, i: rate.rate_mbps
            * greatest(0, least(coalesce(rates[i + 1].t_s, end_s), end_s) - greatest(rate.t_s, begin_s))
        )
    ) / (end_s - begin_s);

-- The least propagation delay on the flow's path, one way (ms).
CREATE OR REPLACE MACRO propagation_of(network) AS
    list_sum(
        list_transform(
            list_slice(
                from_json(json_extract(network, '$.links'), '[{"delay_ms": "DOUBLE", "delays": [{"delay_ms": "DOUBLE"}]}]'),
                coalesce(json_extract(network, '$.flow.links[0]')::INTEGER, 0) + 1,
                coalesce(json_extract(network, '$.flow.links[1]')::INTEGER, 1000) + 1
            ),
            lambda link: least(
                coalesce(link.delay_ms, 0), list_min(list_transform(link.delays, lambda step: step.delay_ms))
            )
        )
    );

-- The time of a finite transfer (s), over which its goodput is; null of a flow without an end, or that did not reach it.
-- The byte more is its FIN, which counts as received where the transfer did not end.
CREATE OR REPLACE MACRO completion_of(network, mbps, begin_s, end_s) AS
    CASE
        WHEN (json_extract(network, '$.flow.size_bytes')::DOUBLE + 1) * 8e-6 / mbps
            < coalesce(json_extract(network, '$.flow.stop_s')::DOUBLE, end_s) - begin_s - 1e-9
            THEN json_extract(network, '$.flow.size_bytes')::DOUBLE * 8e-6 / mbps
    END;

-- One row per episode: its network, what it achieved, its return. The file's column `step` is capacity_step here:
-- transitions has a step too. The columns after environment are computed (pool/view_columns.py describes them).
CREATE OR REPLACE VIEW episodes AS
SELECT
    * RENAME (step AS capacity_step),
    coalesce(
        mean_rate(
            rates_of(environment, bandwidth_mbps),
            start_s,
            coalesce(json_extract(environment, '$.flow.stop_s')::DOUBLE, duration_s)
        ),
        bandwidth_mbps
    ) AS capacity_mbps,
    goodput_mbps / capacity_mbps AS utilisation,
    greatest(delay_mean_ms - propagation_of(environment), 0) AS queueing_mean_ms,
    greatest(delay_p95_ms - propagation_of(environment), 0) AS queueing_p95_ms,
    CASE WHEN flows > 1 THEN greatest(capacity_mbps * 1448 / 1500 - goodput_mbps, 0) END AS competitor_mbps,
    CASE
        WHEN flows > 1
            THEN (goodput_mbps + competitor_mbps) ** 2
            / (flows * (goodput_mbps ** 2 + competitor_mbps ** 2 / (flows - 1)))
    END AS jain_index,
    completion_of(environment, goodput_mbps, start_s, duration_s) AS completion_s
FROM read_parquet(getvariable('pool') || '/episodes.parquet');

-- The transitions of one episode in order: FROM episode('I-24mbps-40ms-1bdp-...cubic.0'). Much faster than a filter
-- on transitions: it opens the files of the episode's set and scheme alone.
CREATE OR REPLACE MACRO episode(id) AS TABLE
SELECT *
FROM transitions
WHERE episode_id = id
  AND scheme IN (SELECT scheme FROM episodes WHERE episode_id = id)
  AND "set" IN (SELECT "set" FROM episodes WHERE episode_id = id)
ORDER BY step;

-- One row per network.
CREATE OR REPLACE VIEW environments AS
SELECT
    environment_id,
    any_value("set") AS "set",
    any_value(bandwidth_mbps) AS bandwidth_mbps,
    any_value(capacity_step) AS capacity_step,
    any_value(rtt_ms) AS rtt_ms,
    any_value(queue_bdp) AS queue_bdp,
    any_value(queue_bytes) AS queue_bytes,
    any_value(flows) AS flows,
    any_value(start_s) AS start_s,
    any_value(duration_s) AS duration_s,
    any_value(reward_kind) AS reward_kind,
    count(*) AS episodes,
    any_value(environment) AS environment
FROM episodes
GROUP BY environment_id
ORDER BY ALL;

-- One row per scheme: how much of it there is and how it fares on average over its episodes.
-- utilisation: goodput / rate on flat links; delay_ratio: mean one-way delay / half the minimum RTT.
CREATE OR REPLACE VIEW schemes AS
SELECT
    scheme,
    count(*) AS episodes,
    sum("rows")::BIGINT AS transitions,
    avg(reward_mean) FILTER ("set" = 'I') AS reward_mean_set_i,
    avg(reward_mean) FILTER ("set" = 'II') AS reward_mean_set_ii,
    avg(goodput_mbps / bandwidth_mbps) FILTER ("set" = 'I' AND capacity_step = 1) AS utilisation_set_i,
    avg(delay_mean_ms / (rtt_ms / 2)) FILTER ("set" = 'I') AS delay_ratio_set_i,
    sum(lost_packets) / sum(sent_packets) AS loss_rate
FROM episodes
GROUP BY scheme
ORDER BY scheme;

-- One row per round of a policy in training, whose scheme is policy:NAME@ROUND (sagecc grow); none in other pools.
CREATE OR REPLACE VIEW rounds AS
SELECT
    regexp_extract(scheme, '^policy:(.*)@([0-9]+)$', 1) AS policy,
    regexp_extract(scheme, '^policy:(.*)@([0-9]+)$', 2)::INTEGER AS round,
    any_value(scheme) AS scheme,
    count(*) AS episodes,
    sum("rows")::BIGINT AS transitions,
    median(reward_mean) FILTER ("set" = 'I') AS reward_median_set_i,
    median(reward_mean) FILTER ("set" = 'II') AS reward_median_set_ii,
    sum(lost_packets) / sum(sent_packets) AS loss_rate,
    count(*) FILTER (lost_packets > 0.05 * sent_packets) AS flooded
FROM episodes
WHERE regexp_matches(scheme, '^policy:.*@[0-9]+$')
GROUP BY ALL
ORDER BY policy, round;

-- The data dictionary: name, dtype, unit, formula, paper_index (row of the paper's Table 1, 0 if none), table
-- (transitions, episodes, raw or samples), low and high (bounds that every value keeps). In sagecc it has the computed
-- columns too.
CREATE OR REPLACE VIEW columns AS
SELECT * REPLACE (CASE WHEN "table" = 'episodes' AND name = 'step' THEN 'capacity_step' ELSE name END AS name)
FROM read_parquet(getvariable('pool') || '/columns.parquet')
UNION ALL BY NAME
SELECT unnest(getvariable('view_columns'), recursive := true);
