/** The client of delayq: schedule a message now, and have it delivered at the chosen millisecond. Start at {@link io.delayq.DelayqClient}. */
package io.delayq;
