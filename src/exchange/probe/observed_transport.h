#pragma once
// A transport that tells an observer of each frame that passes, and changes nothing.

#include <memory>

#include "k3pod/transport/transport.h"
#include "k3pod/wire/frame.h"

namespace k3pod::exchange {

// Called on the driver's thread.
class FrameObserver {
  public:
    virtual ~FrameObserver() = default;
    virtual void on_send(const wire::FrameHeader& header) = 0;
    virtual void on_receive(const wire::FrameHeader& header) = 0;
};

// Borrows the observer.
MakeTransport observed(MakeTransport make_inner, FrameObserver& observer);

}  // namespace k3pod::exchange
