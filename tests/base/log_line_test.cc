// Each log entry is one line of printable ASCII, and a reader can recover its values.
// SPDX-License-Identifier: Apache-2.0
#include "src/base/log_line.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace kvcast {
namespace {

constexpr LogEvent kRendered = {"happened", LogLevel::kWarning};
constexpr double kTime = 1767225599.9994;  // 2025-12-31T23:59:59.999Z

std::string Text(LogFields fields, std::string_view source = "") {
  return RenderLogLine(LogFormat::kText, kTime, kRendered, source, fields);
}

std::string Json(LogFields fields, std::string_view source = "") {
  return RenderLogLine(LogFormat::kJson, kTime, kRendered, source, fields);
}

// The value of one text field as text.
std::string AsText(std::string_view value) {
  const std::string start = "2025-12-31T23:59:59.999Z warning happened v=";
  const std::string line = Text({{"v", value}});
  EXPECT_TRUE(line.starts_with(start) && line.ends_with("\n")) << line;
  return line.substr(start.size(), line.size() - start.size() - 1);
}

std::string AsJson(std::string_view value) {
  const std::string start =
      R"({"time":"2025-12-31T23:59:59.999Z","level":"warning","event":"happened","v":)";
  const std::string line = Json({{"v", value}});
  EXPECT_TRUE(line.starts_with(start) && line.ends_with("}\n")) << line;
  return line.substr(start.size(), line.size() - start.size() - 2);
}

TEST(LogLine, HasTimeLevelEventSourceAndTypedFields) {
  const std::string name = "worker-1";
  const auto fields = {LogField("from", "synced"), LogField("lag", uint64_t{18446744073709551615u}),
                       LogField("rank", -3),       LogField("weight", 0.25),
                       LogField("bound", true),    LogField("hint", "")};
  EXPECT_EQ(Text(fields, name),
            "2025-12-31T23:59:59.999Z warning happened source=worker-1 from=synced "
            "lag=18446744073709551615 rank=-3 weight=0.25 bound=true\n");
  EXPECT_EQ(Json(fields, name),
            R"({"time":"2025-12-31T23:59:59.999Z","level":"warning","event":"happened",)"
            R"("source":"worker-1","from":"synced","lag":18446744073709551615,"rank":-3,)"
            R"("weight":0.25,"bound":true})"
            "\n");
}

TEST(LogLine, QuotesATextThatIsNotAPlainWord) {
  EXPECT_EQ(AsText("tcp://[::1]:5557"), "tcp://[::1]:5557");
  EXPECT_EQ(AsText("two words"), R"("two words")");
  EXPECT_EQ(AsText("a=b"), R"("a=b")");
  EXPECT_EQ(AsText(R"(say "no" \ yes)"), R"("say \"no\" \\ yes")");
  EXPECT_EQ(AsJson("plain"), R"("plain")");
  EXPECT_EQ(AsJson(R"(say "no" \ yes)"), R"("say \"no\" \\ yes")");
}

TEST(LogLine, ASenderCannotForgeALineOrControlATerminal) {
  EXPECT_EQ(AsText("x\nerror forged"), R"("x\x0aerror forged")");
  EXPECT_EQ(AsText(std::string("\0\x1b[2J\x7f", 6)), R"("\x00\x1b[2J\x7f")");
  EXPECT_EQ(AsText("caf\xc3\xa9"), R"("caf\xc3\xa9")");
  EXPECT_EQ(AsJson("x\nerror"), R"("x\u000aerror")");
  EXPECT_EQ(AsJson(std::string("\0\x1b\x7f", 3)), R"("\u0000\u001b\u007f")");
}

TEST(LogLine, JsonKeepsUtf8AndReplacesOtherBytes) {
  EXPECT_EQ(AsJson("caf\xc3\xa9"), R"("caf\u00e9")");
  EXPECT_EQ(AsJson("\xe2\x80\xae"), R"("\u202e")");            // right-to-left override
  EXPECT_EQ(AsJson("\xf0\x9f\x98\x80"), R"("\ud83d\ude00")");  // outside of the first plane
  EXPECT_EQ(AsJson("\xff\x80z"), R"("\ufffd\ufffdz")");
  EXPECT_EQ(AsJson("\xc3"), R"("\ufffd")");                      // cut off
  EXPECT_EQ(AsJson("\xc0\xaf"), R"("\ufffd\ufffd")");            // an overlong form
  EXPECT_EQ(AsJson("\xed\xa0\x80"), R"("\ufffd\ufffd\ufffd")");  // a surrogate
  EXPECT_EQ(AsJson("\xf4\x90\x80\x80"), R"("\ufffd\ufffd\ufffd\ufffd")");
}

TEST(LogLine, CutsALongText) {
  const std::string longest(kMaxLogTextBytes, 'a');
  EXPECT_EQ(AsText(longest), longest);
  EXPECT_EQ(AsText(longest + "b"), longest + "...");
  EXPECT_EQ(AsJson(longest + "b"), "\"" + longest + "...\"");
}

TEST(LogLine, EveryByteGivesOneLineOfPrintableAscii) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string value(3, static_cast<char>(byte));
    for (const std::string& line : {Text({{"v", value}}, value), Json({{"v", value}}, value)}) {
      for (size_t i = 0; i + 1 < line.size(); ++i) {
        EXPECT_TRUE(line[i] >= ' ' && line[i] <= '~') << byte;
      }
    }
  }
}

TEST(LogLine, JsonHasNoNumberThatIsNotFinite) {
  EXPECT_NE(Json({{"v", std::numeric_limits<double>::infinity()}}).find(R"("v":null)"),
            std::string::npos);
  EXPECT_NE(Text({{"v", std::nan("")}}).find("v=none"), std::string::npos);
}

}  // namespace
}  // namespace kvcast
