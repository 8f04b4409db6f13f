#pragma once
// What every transport promises about a message, checked in one place.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "k3pod/base/check.h"
#include "k3pod/base/status.h"

namespace k3pod::transport {

// Covers 512 rows of 3584 fp32 (7 MiB), the largest reply of the largest step, twice over.
inline constexpr int64_t kMaxMessageBytes = 16 << 20;

// kInvalidArgument naming `peer_name` unless the header is 64 bytes and the payload within the
// limit.
Status check_message(std::span<const std::byte> header, std::span<const std::byte> payload,
                     const std::string& peer_name);

// Knows whether progress() is running the handler. A Transport method called from in there would
// wait for itself: a broken invariant of the caller, found here. Driver only.
class HandlerGate {
  public:
    // At the start of progress(); leave at its end.
    void enter() {
        check();
        is_inside_ = true;
    }
    void leave() { is_inside_ = false; }
    // At the start of every other method of the driver.
    void check() const {
        K3POD_CHECK(!is_inside_, "a Transport was called from inside its own handler");
    }

  private:
    bool is_inside_ = false;
};

}  // namespace k3pod::transport
