#include "control/station_stream.h"

#include <utility>

namespace k3pod::control {

StationStream::StationStream(grpc::ServerContext& context, Stream& stream)
    : context_(context),
      stream_(stream),
      mailbox_(std::make_shared<Mailbox>()),
      reader_([this] { read(); }) {}

StationStream::~StationStream() {
    end();
    reader_.join();
}

void StationStream::end() {
    mailbox_->close();
    context_.TryCancel();
}

void StationStream::read() {
    v1::StationMessage message;
    while (stream_.Read(&message)) mailbox_->put_message(std::move(message));
    mailbox_->close();
}

bool StationStream::write(const v1::HelloReply& reply) {
    v1::ServerMessage message;
    *message.mutable_hello_reply() = reply;
    return stream_.Write(message);
}

bool StationStream::write(const ServerReport& report) {
    v1::ServerMessage message;
    *message.mutable_report() = to_proto(report);
    return stream_.Write(message);
}

}  // namespace k3pod::control
