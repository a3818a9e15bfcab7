#!/bin/sh
# The tuning of questions A, C and D of section 3 of results/PLAN.md: sh results/evidence/tune.sh [ARM...]
# Each arm is continued where it was stopped; its folder is OUT/ARM (OUT is runs/evidence by default). A search whose result is
# an end of what was tried is repeated once around it.
set -e
here=$(dirname "$0")
out=${OUT:-runs/evidence}
strong="--noise.feedback false --noise.noisy_layers last"

settings() {
    case $1 in
        dropout) echo "--what dropout" ;;
        recurrent) echo "--what dropout,model.dropout.recurrent" ;;
        locked) echo "--what dropout,model.dropout.recurrent --model.dropout.locked true" ;;
        eight-masks) echo "--what model.gate_dropout.x,model.gate_dropout.h" ;;
        zoneout) echo "--what model.zoneout.p_h,model.zoneout.p_c" ;;
        weight-drop) echo "--what model.weight_drop.p" ;;
        weak) echo "" ;;
        strong) echo "$strong" ;;
        bernoulli) echo "--noise.family bernoulli" ;;
        both) echo "--what noise,dropout" ;;
        additive) echo "--noise.mode additive" ;;
        mean-0.8 | mean-1.25) echo "--noise.mean ${1#mean-} --noise.rescaled false" ;;
        rescaled-0.8 | rescaled-1.25) echo "--noise.mean ${1#rescaled-}" ;;
        sequence) echo "--noise.share sequence" ;;
        penalty) echo "$strong --train.objective penalty" ;;
        output) echo "--what model.dropout.output" ;;
        *) echo "tune.sh: there is no arm $1" >&2; exit 2 ;;
    esac
}

arms="dropout recurrent locked eight-masks zoneout weight-drop weak strong bernoulli both additive
mean-0.8 mean-1.25 rescaled-0.8 rescaled-1.25 sequence penalty output"
for arm in ${*:-$arms}; do
    chosen=$(settings "$arm")
    # shellcheck disable=SC2086
    noisin tune "$here/base.toml" --budget 175epochs $chosen --out "$out/$arm"
    again=$(python "$here/again.py" "$out/$arm")
    # shellcheck disable=SC2086
    [ -z "$again" ] || noisin tune "$here/base.toml" --budget 175epochs $chosen $again --out "$out/$arm"
done
