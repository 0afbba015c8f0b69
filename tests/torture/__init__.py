# SPDX-License-Identifier: Apache-2.0
"""Torture: every stage and the agent killed at random moments, every kind of input damaged at random; all of it seeded.

What must come of it: of a kill, that the next run ends with the same bytes, that nothing finished is done again, that
no process and no file stays behind; of a damaged input, one clear line, or a right result.
"""
