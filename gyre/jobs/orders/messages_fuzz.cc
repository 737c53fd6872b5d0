// Messages between node programs and the service, and what both keep on disk: any bytes must be read within the limits
// or refused.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/jobs/orders/byte_stream.h"
#include "gyre/jobs/orders/code_stream.h"
#include "gyre/jobs/orders/log_stream.h"
#include "gyre/jobs/orders/messages.h"

namespace {

template <typename Read>
void read(const gyre::net::Message& message, Read how) {
  try {
    static_cast<void>(how(message));
  } catch (const gyre::Error& error) {
    using gyre::ErrorCode;
    if (error.code() != ErrorCode::kCorruptData && error.code() != ErrorCode::kProtocol) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  gyre::net::Message message;
  const auto bytes = gyre::as_bytes({reinterpret_cast<const char*>(data), size});
  message.payload.assign(bytes.begin(), bytes.end());
  namespace orders = gyre::jobs::orders;
  read(message, orders::registration_from);
  read(message, orders::report_from);
  read(message, orders::order_from);
  read(message, orders::run_command_from);
  read(message, orders::stop_attempt_from);
  read(message, orders::attempt_from);
  read(message, orders::number_from);
  read(message, orders::welcome_from);
  read(message, orders::log_place_from);
  read(message, orders::log_piece_from);
  read(message, orders::code_request_from);
  read(message, orders::code_piece_from);
  read(message, orders::code_refusal_from);
  for (std::uint16_t type = orders::stream_message::kOpen; type <= orders::stream_message::kExit; ++type) {
    message.type = type;
    read(message, [](const gyre::net::Message& each) {
      const orders::StreamMessage part = orders::stream_message_from(each);
      switch (each.type) {
        case orders::stream_message::kOpen: static_cast<void>(orders::stream_request_from(part)); break;
        case orders::stream_message::kCredit:
        case orders::stream_message::kErrorsCredit: static_cast<void>(orders::credit_from(part)); break;
        case orders::stream_message::kSize: static_cast<void>(orders::size_from(part)); break;
        case orders::stream_message::kExit: static_cast<void>(orders::exit_from(part)); break;
        default: break;
      }
      return 0;
    });
  }
  return 0;
}
