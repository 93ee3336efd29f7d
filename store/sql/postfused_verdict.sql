SELECT json FROM postfused WHERE run_id = $run_id AND seq = $seq;
