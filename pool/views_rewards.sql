-- SPDX-License-Identifier: Apache-2.0
-- Any reward of pool/reward.py for the rows of a pool: FROM rewards('graded') WHERE scheme = 'cubic'. Only in
-- connections of this program (pool/views.py), whose function rewards_of_rows computes them, an episode at a time.
CREATE OR REPLACE MACRO rewards(name) AS TABLE
WITH whole AS (
    SELECT
        episode_id,
        "set",
        scheme,
        list(
            {'step': step, 't_s': t_s, 'dr': dr, 'loss_db': loss_db, 'rtt_rate': rtt_rate, 'reward': reward}
            ORDER BY step
        ) AS ticks
    FROM transitions
    GROUP BY episode_id, "set", scheme
)
SELECT
    episode_id,
    "set",
    scheme,
    unnest(list_transform(ticks, lambda tick: tick.step)) AS step,
    unnest(rewards_of_rows(name, environment, ticks)) AS reward
FROM whole
JOIN (SELECT episode_id, environment FROM episodes) USING (episode_id);
