// A layer whose server is lost, late or answers nonsense is held in place: earlier layers of the
// step have advanced state that cannot be taken back, and a server keeps nothing between frames, so
// the frame lies in its slot until it can be sent again.

#include <fmt/format.h>

#include <algorithm>

#include "exchange/client.h"
#include "k3pod/base/log.h"

namespace k3pod::exchange {

// Whether a step that needs the peer would be held in vain.
bool Client::is_gone_for_good_locked(const Peer& peer) const {
    return clock_.now() - peer.down_since() >= options_.hold_timeout;
}

void Client::hold_or_fail_locked(Peer& peer, const Status& why) {
    OwedReply& owed = owed_[peer.index()];
    if (!owed.is_pending || !exchange_.failure.is_ok()) return;
    if (!can_hold_locked()) {
        exchange_.failure = Status(Code::kUnavailable, why.message());
        return;
    }
    // A server that answers nonsense is not to be asked as fast as it answers.
    owed.resend_after = options_.frame_deadline;
    owed.resend_at = clock_.now() + owed.resend_after;
    if (!owed.trouble.is_ok()) {
        owed.trouble = why;
        return;
    }
    owed.trouble = why;
    peer.metrics.holds.add();
    begin_hold_locked(peer);
    log::warning(fmt::format("step {} is held at layer {}: {}", exchange_.step, exchange_.layer,
                             why.message()));
}

// A server that is lost again and again does not move the limit, and one that was lost before the
// step came has used up a part of it.
void Client::begin_hold_locked(const Peer& peer) {
    const TimePoint now = clock_.now();
    const TimePoint lost = peer.is_up() ? now : peer.down_since();
    const TimePoint until = lost + options_.hold_timeout;
    if (!exchange_.is_held) {
        exchange_.is_held = true;
        exchange_.held_since = now;
        exchange_.held_until = until;
    }
    exchange_.held_until = std::min(exchange_.held_until, until);
    show_hold_locked();
}

// Servers that live and do not answer keep their session: what they are computing is not thrown
// away when it merely takes long.
void Client::hold_late_locked(TimePoint now) {
    for (const auto& peer : peers_) {
        if (!peer) continue;
        const OwedReply& owed = owed_[peer->index()];
        if (!owed.is_pending || !owed.trouble.is_ok()) continue;
        peer->metrics.deadline_failures.add();
        hold_or_fail_locked(*peer, late_locked(describe_late_locked(*peer, now)));
    }
}

void Client::give_up_locked(TimePoint now) {
    std::string reasons;
    for (const OwedReply& owed : owed_) {
        if (!owed.is_pending || owed.trouble.is_ok()) continue;
        reasons += (reasons.empty() ? "" : "; ") + owed.trouble.message();
    }
    exchange_.failure = unavailable(
        fmt::format("layer {} of step {} was held for {:.1f} s (hold_timeout {:.1f} s) in vain: {}",
                    exchange_.layer, exchange_.step, to_seconds(now - exchange_.held_since),
                    to_seconds(options_.hold_timeout), reasons));
}

void Client::end_hold_locked() {
    if (is_complete_or_failed() && exchange_.failure.is_ok()) {
        log::info(fmt::format("step {} goes on at layer {} after {:.2f} s", exchange_.step,
                              exchange_.layer, to_seconds(clock_.now() - exchange_.held_since)));
    }
    exchange_.is_held = false;
    exchange_.num_pending = 0;
    for (OwedReply& owed : owed_) owed.is_pending = false;
    show_hold_locked();
}

// After every change of who is waited for.
void Client::show_hold_locked() {
    std::string nodes;
    for (const auto& peer : peers_) {
        if (!peer) continue;
        const OwedReply& owed = owed_[peer->index()];
        const bool is_awaited = owed.is_pending && !owed.trouble.is_ok();
        peer->metrics.holding.set(is_awaited ? 1 : 0);
        if (is_awaited) nodes += (nodes.empty() ? "" : ", ") + peer->name();
    }
    const std::lock_guard lock(hold_view_mutex_);
    hold_view_ = {.nodes = nodes, .layer = exchange_.layer, .since = exchange_.held_since};
}

std::string Client::holding() const {
    HoldView view;
    {
        const std::lock_guard lock(hold_view_mutex_);
        view = hold_view_;
    }
    if (view.nodes.empty()) return {};
    return fmt::format("waiting for {} for {:.1f} s at layer {}", view.nodes,
                       to_seconds(clock_.now() - view.since), view.layer);
}

void Client::stop_holding(const Status& why) {
    {
        const UrgentLock drive(mutex_);
        hold_refusal_ = why;
        if (exchange_.is_held && !is_complete_or_failed()) exchange_.failure = why;
    }
    transport_->wake();
}

}  // namespace k3pod::exchange
