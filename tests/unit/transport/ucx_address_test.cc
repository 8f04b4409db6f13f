#include "transport/ucx/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/ucx/settings.h"
#include "transport/ucx/worker.h"

namespace k3pod::ucx {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

const Bytes kWorkerAddress(40, std::byte{0x21});

Bytes wrapped(TransportKind kind) {
    return wrap_address(kind, {.worker = kWorkerAddress, .process = {.pid = 9, .start_ticks = 77}});
}

TEST(UcxAddress, comes_out_as_it_went_in) {
    const Bytes bytes = wrapped(TransportKind::kTcp);
    const auto address = unwrap_address(TransportKind::kTcp, bytes, "spark-1");
    ASSERT_TRUE(address.is_ok()) << address.status().to_string();
    EXPECT_EQ(Bytes(address->worker.begin(), address->worker.end()), kWorkerAddress);
    EXPECT_EQ(address->process.pid, 9);
    EXPECT_EQ(address->process.start_ticks, 77u);
}

TEST(UcxAddress, refuses_a_change_of_any_byte_that_ucx_would_read) {
    for (size_t at = 32; at < 72; ++at) {
        Bytes bytes = wrapped(TransportKind::kTcp);
        bytes[at] ^= std::byte{0x40};
        EXPECT_EQ(unwrap_address(TransportKind::kTcp, bytes, "spark-1").status().code(),
                  Code::kInvalidArgument)
            << "byte " << at;
    }
}

TEST(UcxAddress, refuses_another_transport_and_another_release_by_name) {
    Bytes bytes = wrapped(TransportKind::kTcp);
    EXPECT_THAT(unwrap_address(TransportKind::kRc, bytes, "spark-1").status().message(),
                HasSubstr("spark-1 uses ucx/tcp, this node ucx/rc"));
    bytes[6] = std::byte{9};   // major
    bytes[7] = std::byte{99};  // minor
    const auto other = unwrap_address(TransportKind::kTcp, bytes, "spark-1");
    EXPECT_EQ(other.status().code(), Code::kFailedPrecondition);
    EXPECT_THAT(other.status().message(), HasSubstr("spark-1 runs UCX 9.99, this node "));
}

TEST(UcxStart, failure_tells_what_was_asked_and_what_to_do) {
    const std::string text = explain_start_failure(
        {.kind = TransportKind::kRc, .device = "mlx5_0:1"}, settings_of(TransportKind::kRc),
        UCS_ERR_NO_MEMORY, "ibv_reg_mr(length=33554432) failed: Cannot allocate memory", 65536);
    for (const char* part : {"ucx/rc on device mlx5_0:1 cannot start: Out of memory",
                             "said: ibv_reg_mr(length=33554432) failed: Cannot allocate memory",
                             "Receive buffers asked for: 33554432 bytes",
                             "limit on locked memory: 65536 bytes", "LimitMEMLOCK=infinity"}) {
        EXPECT_THAT(text, HasSubstr(part));
    }
    const std::string silent = explain_start_failure(
        {.kind = TransportKind::kShm}, settings_of(TransportKind::kShm), UCS_ERR_NO_DEVICE, "", -1);
    EXPECT_THAT(silent, HasSubstr(" gave no reason. Receive buffers"));
    EXPECT_THAT(silent, HasSubstr("limit on locked memory: unlimited"));
}

}  // namespace
}  // namespace k3pod::ucx
