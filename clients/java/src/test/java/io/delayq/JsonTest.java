package io.delayq;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.math.BigDecimal;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

class JsonTest {
    @Test
    void whatIsWrittenIsReadBack() {
        var value = Map.of("a", Arrays.asList(1L, new BigDecimal("1.50"), true, null, "ü\"\\\n\u0001😀", Map.of(), List.of()));
        assertEquals(value, Json.read(Json.write(value)));
        assertEquals(new BigDecimal("12345678901234567890"), Json.read(" 12345678901234567890 "));
        assertEquals("é😀/", Json.read("\"\\u00e9\\ud83d\\ude00\\/\""));
        assertEquals("{\"a\":[1,{}]}", Json.write(Map.of("a", List.of(1, new Json.Raw("{}")))));
    }

    @Test
    void everythingElseIsRefused() {
        for (var wrong : List.of("", "{", "[1,]", "{\"a\":}", "\"\\x\"", "\"\n\"", "tru", "1 2", "-", "01", "1.", "+1", "1e", "\"\\u12", "[".repeat(600))) {
            assertThrows(IllegalArgumentException.class, () -> Json.read(wrong), wrong);
        }
        assertThrows(IllegalArgumentException.class, () -> Json.write(Double.NaN));
        assertThrows(IllegalArgumentException.class, () -> Json.write(new Object()));
    }
}
