// The peer that tests kill: mortal_peer shm|tcp STATION_ADDRESS_HEX prints its own address as hex
// and echoes every message until it is killed or its parent dies.

#include <sys/prctl.h>

#include <csignal>
#include <cstdio>
#include <deque>
#include <string>

#include "k3pod/transport/transport.h"
#include "tests/support/hex.h"

namespace k3pod {
namespace {

struct Echo final : TransportHandler {
    struct Message {
        std::vector<std::byte> header, payload;
    };
    void on_message(std::span<const std::byte> header,
                    std::span<const std::byte> payload) override {
        waiting.push_back({{header.begin(), header.end()}, {payload.begin(), payload.end()}});
    }
    void on_sent(uint64_t /*token*/) override { sending.pop_front(); }
    void on_peer_failed(PeerId /*peer*/, const Status& why) override {
        std::fprintf(stderr, "mortal_peer: %s\n", why.message().c_str());
    }
    std::deque<Message> waiting, sending;
};

int run(const std::string& kind, const std::string& station_address) {
    Echo echo;
    auto transport = make_ucx_transport(
        {.kind = kind == "shm" ? TransportKind::kShm : TransportKind::kTcp}, echo);
    if (!transport) {
        std::fprintf(stderr, "mortal_peer: %s\n", transport.status().message().c_str());
        return 1;
    }
    Transport& ucx = **transport;
    const auto station = ucx.connect(from_hex(station_address), "station");
    if (!station) {
        std::fprintf(stderr, "mortal_peer: %s\n", station.status().message().c_str());
        return 1;
    }
    std::printf("%s\n", to_hex(ucx.local_address()).c_str());
    std::fflush(stdout);
    while (true) {
        if (ucx.progress() == 0) ucx.wait(std::chrono::seconds(1));
        while (!echo.waiting.empty()) {
            echo.sending.push_back(std::move(echo.waiting.front()));
            echo.waiting.pop_front();
            const Echo::Message& message = echo.sending.back();
            if (!ucx.send(*station, message.header, message.payload, 0).is_ok()) return 1;
        }
    }
}

}  // namespace
}  // namespace k3pod

int main(int argc, char** argv) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (argc != 3) {
        std::fprintf(stderr, "usage: mortal_peer shm|tcp STATION_ADDRESS_HEX\n");
        return 2;
    }
    return k3pod::run(argv[1], argv[2]);
}
