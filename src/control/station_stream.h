#pragma once
// One stream of the server: a thread reads what the station sends into the mailbox.

#include <memory>
#include <thread>

#include "control.grpc.pb.h"
#include "control/convert.h"
#include "control/mailbox.h"

namespace k3pod::control {

class StationStream {
  public:
    using Stream = grpc::ServerReaderWriter<v1::ServerMessage, v1::StationMessage>;

    // Both are borrowed for the life of this object.
    StationStream(grpc::ServerContext& context, Stream& stream);
    ~StationStream();  // Cancels the stream unless the station has ended it.
    StationStream(const StationStream&) = delete;
    StationStream& operator=(const StationStream&) = delete;

    // Closed when the stream ends.
    const std::shared_ptr<Mailbox>& mailbox() const { return mailbox_; }

    // Ends the stream, also under a write that the station does not read. Any thread.
    void end();

    // The session's thread only. False when the stream is over.
    bool write(const v1::HelloReply& reply);
    bool write(const ServerReport& report);

  private:
    void read();

    grpc::ServerContext& context_;
    Stream& stream_;
    std::shared_ptr<Mailbox> mailbox_;  // Shared with the reports that come after the stream.
    std::thread reader_;
};

}  // namespace k3pod::control
