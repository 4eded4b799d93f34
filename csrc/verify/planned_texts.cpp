#include "planned_texts.h"

namespace duo {

void planned_texts::begin_alone(verify_slot & s) {
    if (is_alone(s)) {
        return;
    }
    const request & req = s.text.req();
    clients_.use(req.client);
    plan_params params = req.plan;
    params.has_model   = s.for_draft;
    params.kind        = req.sampling.kind();
    planner_.begin(params, {.n_undo  = model_.facts().n_undo,
                            .copy    = model_.facts().undo == undo_kind::copy,
                            .goes_on = req.id == last_planned_});
    planned_slot_ = &s;
    last_planned_ = req.id;
    together_     = {};
    any_draft_    = s.for_draft;
}

// Their drafts run ahead if one of them may. What is known of guesses is that of the first text with a draft.
void planned_texts::begin_together(const std::vector<verify_slot *> & texts) {
    if (wires_.on_host) { // elsewhere there is one draft
        clients_.use_median(texts);
    }
    terms now{.n_texts = int32_t(texts.size()), .sync = true, .client = clients_.used()};
    for (const verify_slot * s : texts) {
        if (s->for_draft) {
            now.kind   = now.drafts ? now.kind : s->text.req().sampling.kind();
            now.drafts = true;
            now.sync   = now.sync && s->text.req().plan.mode == run_mode::sync;
            // On a host one client must not decide for the others.
            now.always = now.always || (!wires_.on_host && s->text.req().plan.always);
        }
    }
    if (planned_slot_ == nullptr && now == together_) {
        return;
    }
    planner_.begin(
        {.mode      = now.drafts && now.sync ? run_mode::sync : run_mode::async,
         .has_model = now.drafts,
         .always    = now.always,
         .kind      = now.kind},
        {.n_texts = now.n_texts, .n_undo = n_undo(now.n_texts), .no_waits = wires_.on_host, .goes_on = true});
    planned_slot_ = nullptr;
    together_     = now;
    any_draft_    = now.drafts;
}

// Texts that cannot share a pass take turns, one in each pass.
int32_t planned_texts::n_undo(int32_t n_texts) const {
    const int32_t together = n_texts > 1 ? model_.n_undo_together(n_texts) : -1;
    return together >= 0 ? together : model_.facts().n_undo;
}

} // namespace duo
