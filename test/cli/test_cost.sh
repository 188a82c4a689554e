#!/usr/bin/env bash
# cost: a day's electricity by arithmetic of our own, a modelled card, what is refused, a measurement of the shipped model.
set -euo pipefail
# shellcheck source=test/cli/lib.sh
. "$(dirname "$0")/lib.sh"
field() { sed -n "s/^ *\"$1\": \"*\(.*[^\",]\)\"*,*$/\1/p" "$2" | head -1; }
near() { # FIELD WANT: of the file got, within 1e-6 of it
    awk -v a="$(field "$1" got)" -v b="$2" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(d <= 1e-6 * (b < 0 ? -b : b) + 1e-12) }' ||
        fail "$1: expected $2, got $(field "$1" got)"
}
cost() { "$CHIMERE" cost "$@"; }

# 1,000 requests of 500 prompt tokens at 1,000 per second and 100 answer tokens at 50: 0.5 + 2 s each, 2,500 s in all.
given=(--watts 100 --idle-watts 10 --speed 50 --prefill-speed 1000 -p 500 -n 100 --requests 1000)
cost "${given[@]}" --price 0.25/kWh --json >got
near busy_hours "$(awk 'BEGIN { printf "%.12g", 2500 / 3600 }')"
near busy_kwh "$(awk 'BEGIN { printf "%.12g", 2500 * 100 / 3.6e6 }')"
near idle_kwh "$(awk 'BEGIN { printf "%.12g", (86400 - 2500) * 10 / 3.6e6 }')"
near kwh 0.3025
near cost_per_day 0.075625
near cost_per_request 0.000075625
near joules_per_answer_token 2
near joules_per_prompt_token 0.1
cost "${given[@]}" --price 2 --machine-watts 50 --json >got # 50 W all day: 1.2 kWh more
near kwh 1.5025
near cost_per_day 3.005
cost "${given[@]}" >text
grep -q '^cost     0.07562 per day at 0.25 per kWh' text && grep -q 'given: 100 W' text && grep -q 'not counted' text ||
    fail "$(cat text)"
cost "${given[@]}" -n 0 --json >got # no answers: 500 s
near busy_hours "$(awk 'BEGIN { printf "%.12g", 500 / 3600 }')"

# A card: half of 448 GB/s by 2.06 GB; 72 % of 180 W.
cost --card RTX-5060-ti-16g --json >got
near decode_tok_s "$(awk 'BEGIN { printf "%.12g", 0.5 * 448e9 / 2.06e9 }')"
near joules_per_answer_token "$(awk 'BEGIN { printf "%.12g", 0.72 * 180 / (0.5 * 448e9 / 2.06e9) }')"
near idle_watts 18
cost --card h100-80g --bytes-per-token 4120000000 --share 0.25 --json >got
near decode_tok_s "$(awk 'BEGIN { printf "%.12g", 0.25 * 3350e9 / 4.12e9 }')"
cost --card rtx-5060-ti-16g --watts 129 --speed 98.7 --json >got # what is given replaces the model
near joules_per_answer_token "$(awk 'BEGIN { printf "%.12g", 129 / 98.7 }')"
cost --card rtx-5060-ti-16g >text
grep -q 'modelled: 50 % of 448 GB/s' text && grep -q "assumed: 10 % of the board's power" text || fail "$(cat text)"

for price in '' free -1 0.25/MWh 1e9 nan; do
    refuses 2 'expected a number and /kWh' "$CHIMERE" cost "${given[@]}" --price "$price"
done
refuses 1 "no card named 'rtx-1'" "$CHIMERE" cost --card rtx-1
refuses 1 'a day has 24' "$CHIMERE" cost "${given[@]}" --requests 40000

# Measured: bench and cost use one reader; without counters the assumption is named.
model=$(dirname "$CHIMERE")/chimere-nano.gguf
[ -f "$model" ] || exit 0
cost -m "$model" -q -p 64 -n 16 -r 1 --requests 100 --json >got
case $(field speed_from got) in "measured here: bench of "*) ;; *) fail "$(cat got)" ;; esac
case $(field energy_from got) in
"measured here: "* | "assumed: 65 W ("*) ;;
*) fail "$(cat got)" ;;
esac
"$CHIMERE" bench -m "$model" -q -p 64 -n 16 -r 1 --json >bench
case $(field energy_from got) in
measured*) grep -q '"joules_per_tok"' bench && grep -q '"idle_watts"' bench || fail "bench has no energy" ;;
*) ! grep -q joules bench || fail "bench has energy that cost cannot read" ;;
esac
awk -v a="$(field cost_per_day got)" 'BEGIN { exit !(a > 0) }' || fail "$(cat got)"
