// What only the UCX transports promise, beyond the contract: settings in force, refusals in words a
// person can use, and clean endings.

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/contract/transport_contract.h"
#include "tests/support/hex.h"
#include "tests/support/transport_child.h"

namespace k3pod {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

// A sanitizer keeps freed memory aside, which looks like a leak from outside.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kHasSanitizer = true;
#else
constexpr bool kHasSanitizer = false;
#endif

constexpr const char* kMortalPeer = K3POD_BINARY_DIR "/tests/contract/transport/mortal_peer";

struct UcxNode {
    explicit UcxNode(TransportKind kind)
        : transport(make_ucx_transport({.kind = kind}, recorder).value()) {}

    Recorder recorder;
    std::unique_ptr<Transport> transport;
};

const char* name_of(TransportKind kind) {
    return kind == TransportKind::kShm ? "shm" : "tcp";
}

class UcxBehaviour : public ::testing::TestWithParam<TransportKind> {};

INSTANTIATE_TEST_SUITE_P(Kinds, UcxBehaviour,
                         ::testing::Values(TransportKind::kShm, TransportKind::kTcp),
                         [](const auto& test) { return std::string(name_of(test.param)); });

template <class Done>
bool drive_until(std::vector<UcxNode*> nodes, Done done) {
    const auto deadline = steady_clock::now() + seconds(10);
    while (!done()) {
        if (steady_clock::now() > deadline) return false;
        for (UcxNode* node : nodes) node->transport->progress();
    }
    return true;
}

int64_t resident_bytes() {
    std::ifstream statm("/proc/self/statm");
    int64_t total_pages = 0, resident_pages = 0;
    statm >> total_pages >> resident_pages;
    return resident_pages * sysconf(_SC_PAGESIZE);
}

int64_t num_open_files() {
    const std::filesystem::directory_iterator files("/proc/self/fd");
    return std::distance(begin(files), end(files));
}

// Both sides connect, exchange one message each way and part.
void meet_once(UcxNode& station, UcxNode& server) {
    const PeerId out = *station.transport->connect(server.transport->local_address(), "spark-1");
    const PeerId back = *server.transport->connect(station.transport->local_address(), "station");
    const Bytes header = test_header(1);
    const Bytes payload = test_payload(1, 7168);
    ASSERT_TRUE(station.transport->send(out, header, payload, 1).is_ok());
    ASSERT_TRUE(drive_until({&station, &server}, [&] {
        return !server.recorder.messages.empty() && !station.recorder.sent.empty();
    }));
    ASSERT_TRUE(server.transport->send(back, header, payload, 1).is_ok());
    ASSERT_TRUE(drive_until({&station, &server}, [&] {
        return !station.recorder.messages.empty() && !server.recorder.sent.empty();
    }));
    station.transport->disconnect(out);
    server.transport->disconnect(back);
    for (int i = 0; i < 10; ++i) {
        station.transport->progress();
        server.transport->progress();
    }
    for (UcxNode* node : {&station, &server}) {
        node->recorder.messages.clear();
        node->recorder.sent.clear();
    }
}

TEST_P(UcxBehaviour, two_hundred_reconnects_leave_no_memory_and_no_files_behind) {
    UcxNode station(GetParam()), server(GetParam());
    for (int i = 0; i < 50; ++i) ASSERT_NO_FATAL_FAILURE(meet_once(station, server));
    const int64_t bytes_before = resident_bytes();
    const int64_t files_before = num_open_files();
    for (int i = 0; i < 200; ++i) ASSERT_NO_FATAL_FAILURE(meet_once(station, server));
    // Endpoints closed politely would keep 25 KiB each, two times 200 of them: 10 MB.
    if (!kHasSanitizer) {
        EXPECT_LT(resident_bytes() - bytes_before, 2 << 20);
    }
    EXPECT_LE(num_open_files(), files_before + 4);
}

TEST_P(UcxBehaviour, a_death_ends_the_wait_and_is_reported_within_a_second) {
    UcxNode station(GetParam());
    TransportChild child(
        {kMortalPeer, name_of(GetParam()), to_hex(station.transport->local_address())});
    const Bytes address = from_hex(child.read_line());
    ASSERT_TRUE(station.transport->connect(address, "spark-1").is_ok());
    const Bytes header = test_header(1);
    ASSERT_TRUE(station.transport->send(0, header, {}, 1).is_ok());
    ASSERT_TRUE(drive_until({&station}, [&] { return !station.recorder.messages.empty(); }));

    child.kill_and_reap();
    const auto killed = steady_clock::now();
    while (station.recorder.failures.empty() && steady_clock::now() - killed < seconds(10)) {
        if (station.transport->progress() == 0) station.transport->wait(seconds(30));
    }
    EXPECT_LT(steady_clock::now() - killed, seconds(1));
    ASSERT_TRUE(station.recorder.failures.contains(0));
    EXPECT_THAT(station.recorder.failures.at(0).front().message(), HasSubstr("spark-1 is gone"));
}

TEST(Ucx, finds_a_dead_peer_over_shm_that_nobody_has_reaped) {
    UcxNode station(TransportKind::kShm);
    TransportChild child({kMortalPeer, "shm", to_hex(station.transport->local_address())});
    const Bytes address = from_hex(child.read_line());
    ASSERT_TRUE(station.transport->connect(address, "spark-1").is_ok());
    kill(child.pid(), SIGKILL);
    EXPECT_TRUE(drive_until({&station}, [&] { return !station.recorder.failures.empty(); }));
    EXPECT_THAT(station.recorder.failures.at(0).front().message(),
                HasSubstr("its process has ended"));
}

TEST(Ucx, variables_of_the_environment_change_nothing) {
    setenv("UCX_TLS", "self", 1);
    setenv("UCX_NET_DEVICES", "no_such_device", 1);
    setenv("UCX_POSIX_SEG_SIZE", "rubbish", 1);
    UcxNode station(TransportKind::kTcp);
    // The child inherits them; this process has dropped its own by now.
    TransportChild child({"/usr/bin/env", "UCX_TLS=self", "UCX_NET_DEVICES=no_such_device",
                          "UCX_POSIX_SEG_SIZE=rubbish", kMortalPeer, "tcp",
                          to_hex(station.transport->local_address())});
    const Bytes address = from_hex(child.read_line());
    const auto peer = station.transport->connect(address, "spark-1");
    ASSERT_TRUE(peer.is_ok()) << peer.status().to_string();
    const Bytes header = test_header(1);
    ASSERT_TRUE(station.transport->send(*peer, header, {}, 1).is_ok());
    EXPECT_TRUE(drive_until({&station}, [&] { return !station.recorder.messages.empty(); }));
    for (const char* name : {"UCX_TLS", "UCX_NET_DEVICES", "UCX_POSIX_SEG_SIZE"}) unsetenv(name);
}

TEST(Ucx, refuses_a_peer_on_another_transport_by_name) {
    UcxNode shm(TransportKind::kShm), tcp(TransportKind::kTcp);
    const auto peer = shm.transport->connect(tcp.transport->local_address(), "spark-1");
    ASSERT_FALSE(peer.is_ok());
    EXPECT_EQ(peer.status().code(), Code::kFailedPrecondition);
    EXPECT_THAT(peer.status().message(), HasSubstr("spark-1 uses ucx/tcp, this node ucx/shm"));
}

TEST(Ucx, refuses_a_device_that_is_not_there_by_name) {
    Recorder recorder;
    const auto transport =
        make_ucx_transport({.kind = TransportKind::kTcp, .device = "nosuch0"}, recorder);
    ASSERT_FALSE(transport.is_ok());
    EXPECT_EQ(transport.status().code(), Code::kUnavailable);
    EXPECT_THAT(transport.status().message(), HasSubstr("ucx/tcp on device nosuch0"));
    EXPECT_THAT(transport.status().message(), HasSubstr("What to do: "));
}

// Locked memory is what most often keeps RDMA from starting. There may be no RDMA here, which fails
// alike.
TEST(Ucx, a_failed_start_tells_bytes_limit_and_remedy) {
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);
    const rlimit small{.rlim_cur = 64 << 10, .rlim_max = before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &small), 0);
    Recorder recorder;
    const auto transport =
        make_ucx_transport({.kind = TransportKind::kRc, .device = "mlx5_9:1"}, recorder);
    setrlimit(RLIMIT_MEMLOCK, &before);
    ASSERT_FALSE(transport.is_ok());
    for (const char* part :
         {"ucx/rc on device mlx5_9:1", "UCX ", "asked for: 33554432 bytes",
          "limit on locked memory: 65536 bytes", "kernel ", "LimitMEMLOCK=infinity"}) {
        EXPECT_THAT(transport.status().message(), HasSubstr(part));
    }
}

TEST(Ucx, starts_without_locked_memory_where_none_is_needed) {
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);
    const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &none), 0);
    Recorder recorder;
    for (const TransportKind kind : {TransportKind::kShm, TransportKind::kTcp}) {
        EXPECT_TRUE(make_ucx_transport({.kind = kind}, recorder).is_ok());
    }
    setrlimit(RLIMIT_MEMLOCK, &before);
}

// The handlers may be a sanitizer's, but not those of UCX.
TEST(Ucx, leaves_the_signals_of_the_process_alone) {
    UcxNode node(TransportKind::kTcp);
    for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) {
        struct sigaction action {};
        ASSERT_EQ(sigaction(signal, nullptr, &action), 0);
        if (action.sa_handler == SIG_DFL) continue;
        Dl_info owner{};
        const auto* handler = reinterpret_cast<const void*>(action.sa_sigaction);
        ASSERT_NE(dladdr(handler, &owner), 0) << "signal " << signal;
        EXPECT_THAT(owner.dli_fname, ::testing::Not(HasSubstr("libucs"))) << "signal " << signal;
    }
}

TEST(Ucx, tells_the_release_and_the_path_of_the_loaded_library) {
    EXPECT_THAT(ucx_version(),
                ::testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+ \\(/.*libucp.*\\)"));
}

}  // namespace
}  // namespace k3pod
