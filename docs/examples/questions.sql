-- SPDX-License-Identifier: Apache-2.0
-- Questions to a pool: `sagecc sql --shell --raw datasets/raw --league leagues/results < docs/examples/questions.sql`.

-- The return of every scheme in one environment
SELECT scheme, round(reward_mean, 2) AS reward, round(goodput_mbps, 1) AS mbps, round(delay_mean_ms, 1) AS delay_ms, lost_packets
FROM episodes
WHERE environment_id = (SELECT min(environment_id) FROM environments WHERE "set" = 'I')
ORDER BY reward DESC;

-- Delay against buffer size
--   Mean one-way delay over its value without a queue, by queue size in BDP.
PIVOT (SELECT scheme, queue_bdp, delay_mean_ms / (rtt_ms / 2) AS stretch FROM episodes WHERE "set" = 'I')
ON queue_bdp IN (0.5, 1.0, 2.0, 4.0, 8.0, 16.0) USING round(avg(stretch), 2)
ORDER BY scheme;

-- The congestion window over time
SELECT t_s, cwnd_pkts, srtt_ms, delivery_mbps, queue_bytes / 1e3 AS queue_kb, lost_total_pkts, ca_state
FROM samples
WHERE scheme = 'cubic' AND "set" = 'I' AND step % 10 = 0
  AND episode_id = (SELECT min(episode_id) FROM episodes WHERE scheme = 'cubic' AND "set" = 'I')
ORDER BY step;

-- Rate, delay, action and reward over time
SELECT t_s, dr * 100 AS mbps, srtt * 100 AS srtt_ms, action, reward
FROM episode((SELECT max(episode_id) FROM episodes WHERE scheme = 'cubic' AND "set" = 'I'))
WHERE step % 100 = 0;

-- States before losses
--   The last tick before recovery: sRTT over the minimum RTT, and the growth of RTT and window.
WITH ticks AS (
    SELECT scheme, ca_state, lead(ca_state) OVER (PARTITION BY episode_id ORDER BY step) AS next_state,
           1 / rtt_rate AS stretch, "rtt_s.avg" / "rtt_m.avg" AS rtt_trend, log2(pre_act) AS growth
    FROM transitions
    WHERE "set" = 'I' AND scheme IN ('cubic', 'vegas') AND rtt_rate > 0
)
SELECT scheme, count(*) AS losses, round(median(stretch), 2) AS srtt_over_min, round(median(rtt_trend), 3) AS rtt_trend,
       round(avg(growth), 4) AS window_growth_log2
FROM ticks
WHERE ca_state < 3 AND next_state >= 3
GROUP BY scheme
ORDER BY losses DESC;

-- What a scheme does with its window
--   The share of ticks in which it leaves the window, grows it, shrinks it, and cuts it by a fifth or more.
SELECT scheme, round(avg((action = 1)::INT), 4) AS leaves, round(avg((action > 1)::INT), 4) AS grows,
       round(avg((action < 1 AND action > 0.8)::INT), 4) AS shrinks, round(avg((action <= 0.8)::INT), 5) AS cuts
FROM transitions
GROUP BY scheme
ORDER BY leaves DESC;

-- How soon new bandwidth is used
--   Seconds from the first rise of the link's rate until the delivery rate reaches four fifths of it.
WITH rise AS (
    SELECT episode_id, bandwidth_mbps * capacity_step AS new_mbps FROM episodes WHERE "set" = 'I' AND capacity_step > 1
), reached AS (
    SELECT scheme, episode_id, min(t_s) - 17 AS after_s
    FROM transitions JOIN rise USING (episode_id)
    WHERE "set" = 'I' AND t_s BETWEEN 17 AND 24 AND dr * 100 >= 0.8 * new_mbps
    GROUP BY ALL
)
SELECT scheme, count(*) AS reached, round(median(after_s), 2) AS median_s
FROM reached
GROUP BY scheme
ORDER BY reached DESC, median_s;

-- Share next to Cubic
--   Goodput over the fair share in Set II, by queue size. Above 1 it takes from Cubic.
PIVOT (SELECT scheme, queue_bdp, goodput_mbps / (bandwidth_mbps / flows) AS share FROM episodes WHERE "set" = 'II')
ON queue_bdp IN (0.5, 1.0, 2.0, 4.0, 8.0, 16.0) USING round(avg(share), 2)
ORDER BY scheme;

-- Who is best where
--   In how many environments each scheme has the highest mean reward.
WITH best AS (
    SELECT "set", environment_id, arg_max(scheme, reward_mean) AS scheme FROM episodes GROUP BY ALL
)
SELECT scheme, count(*) FILTER ("set" = 'I') AS best_in_set_i, count(*) FILTER ("set" = 'II') AS best_in_set_ii
FROM best
GROUP BY scheme
ORDER BY best_in_set_i DESC, scheme;

-- Winning windows by buffer size
--   From a league: the share of scoring windows that each scheme won.
PIVOT (SELECT scheme, queue_bdp, win FROM league JOIN environments USING (environment_id) WHERE league."set" = 'I')
ON queue_bdp IN (0.5, 1.0, 2.0, 4.0, 8.0, 16.0) USING round(avg(win::INT), 2)
ORDER BY scheme;

-- A part to take away
--   One scheme's states and actions as a file; `sagecc sql` needs `--allow-files-and-extensions`.
COPY (
    SELECT episode_id, step, srtt, thr, "lost_s.max", action, reward
    FROM transitions
    WHERE scheme = 'vegas' AND "set" = 'I' AND step % 10 = 0
) TO 'vegas.parquet' (FORMAT parquet, COMPRESSION zstd);
